// SPDX-License-Identifier: Apache-2.0
//
// Symbols are numbers: a token's id, or from n_vocab on a string that only merges mention. So one
// merge step is one probe of a flat table (16 bytes an entry), and no string is built or compared.
#include "models/tokenizer/bpe.h"

#include <array>

#include "models/tokenizer/utf8.h"

namespace pn::tok {

struct BpeScratch {
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;
  std::string mapped;
};

namespace {

// The GPT-2 alphabet: printable Latin-1 stands for itself, the other bytes follow from U+0100.
struct Alphabet {
  std::array<char32_t, 256> point_of{};
  std::array<int16_t, 0x180> byte_of;

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; byte++) {
      bool self = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      point_of[byte] = self ? char32_t(byte) : next++;
      byte_of[point_of[byte]] = int16_t(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

void map_bytes(std::string_view bytes, std::string& out) {
  for (char byte : bytes) append_utf8(alphabet().point_of[uint8_t(byte)], out);
}

uint64_t hash(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 29;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const TokenIds& ids, const PreTokenizer& pre)
    : ids_(ids), pre_(pre), n_vocab_(uint32_t(vocabulary.tokens.size())) {
  usable_.assign(n_vocab_, true);
  for (size_t id = 0; id < vocabulary.types.size(); id++) {
    auto type = TokenType(vocabulary.types[id]);
    usable_[id] = type != TokenType::control && type != TokenType::unknown;
  }
}

Result<std::unique_ptr<Bpe>> Bpe::create(const Vocabulary& vocabulary, const TokenIds& ids,
                                         const PreTokenizer& pre) {
  std::unique_ptr<Bpe> bpe(new Bpe(vocabulary, ids, pre));
  PN_TRY(bpe->read_merges(vocabulary.merges));
  return bpe;
}

Result<void> Bpe::read_merges(const std::vector<std::string>& merges) {
  std::unordered_map<std::string, uint32_t> others;
  auto symbol = [&](std::string_view text) {
    auto token = ids_.find(text);
    if (token != ids_.end()) return uint32_t(token->second);
    return others.emplace(text, n_vocab_ + uint32_t(others.size())).first->second;
  };
  for (int byte = 0; byte < 256; byte++) {
    std::string mapped;
    append_utf8(alphabet().point_of[byte], mapped);
    byte_symbol_[byte] = symbol(mapped);
  }
  size_t slots = 16;
  while (slots < merges.size() * 2) slots *= 2;
  merges_.resize(slots);
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); rank++) {
    std::string_view merge = merges[rank];
    size_t space = merge.find(' ', 1);  // byte 0 may be a space that is part of the left side
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return fail(Code::invalid,
                  "tokenizer.ggml.merges[" + std::to_string(rank) + "] is \"" + merges[rank] +
                      "\", which is not two symbols with a space between: convert the model again",
                  "tokenizer.ggml.merges");
    }
    std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    uint32_t result = symbol(joined);
    if (result < n_vocab_ && !usable_[result])
      continue;  // plain text never becomes a control token
    insert({uint64_t(symbol(left)) << 32 | symbol(right), {uint32_t(rank), result}});
  }
  return {};
}

// The first rank of a pair stands.
void Bpe::insert(const Merge& merge) {
  for (size_t slot = hash(merge.pair);; slot++) {
    Merge& entry = merges_[slot & (merges_.size() - 1)];
    if (entry.pair == merge.pair) return;
    if (entry.pair != UINT64_MAX) continue;
    entry = merge;
    return;
  }
}

Pair Bpe::find(uint32_t left, uint32_t right) const {
  uint64_t pair = uint64_t(left) << 32 | right;
  for (size_t slot = hash(pair);; slot++) {
    const Merge& entry = merges_[slot & (merges_.size() - 1)];
    if (entry.pair == pair) return entry.result;
    if (entry.pair == UINT64_MAX) return {};
  }
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  std::vector<uint32_t> ends;
  pre_.split(text, ends);
  BpeScratch scratch;
  uint32_t from = 0;
  for (uint32_t end : ends) {
    encode_word(text.substr(from, end - from), scratch, out);
    from = end;
  }
}

void Bpe::encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (pre_.ignore_merges) {
    scratch.mapped.clear();
    map_bytes(word, scratch.mapped);
    auto token = ids_.find(scratch.mapped);
    if (token != ids_.end() && usable_[token->second]) {
      out.push_back(token->second);
      return;
    }
  }
  std::vector<Node>& nodes = scratch.nodes;
  nodes.clear();
  for (uint32_t i = 0; i < word.size(); i++) {
    uint32_t next = i + 1 < word.size() ? i + 1 : Node::kNone;
    nodes.push_back({byte_symbol_[uint8_t(word[i])], i, i - 1, next});
  }
  merge_pairs(nodes, scratch.heap, [&](uint32_t left, uint32_t right) {
    return find(nodes[left].value, nodes[right].value);
  });
  for (uint32_t i = 0; i != Node::kNone; i = nodes[i].next) {
    uint32_t end =
        nodes[i].next == Node::kNone ? uint32_t(word.size()) : nodes[nodes[i].next].start;
    emit(nodes[i].value, word.substr(nodes[i].start, end - nodes[i].start), out);
  }
}

// What is no token falls apart into bytes; a byte that the vocabulary lacks has no token and goes.
void Bpe::emit(uint32_t symbol, std::string_view bytes, std::vector<int32_t>& out) const {
  if (symbol < n_vocab_) {
    if (usable_[symbol]) out.push_back(int32_t(symbol));
    return;
  }
  for (char byte : bytes) {
    uint32_t single = byte_symbol_[uint8_t(byte)];
    if (single < n_vocab_ && usable_[single]) out.push_back(int32_t(single));
  }
}

void Bpe::append_piece(std::string_view token, std::string& out) const {
  for (size_t at = 0; at < token.size();) {
    Utf8Step step = utf8_step(token.substr(at));
    int byte = step.valid && step.point < 0x180 ? alphabet().byte_of[step.point] : -1;
    if (byte >= 0) {
      out += char(byte);
    } else {
      out += token.substr(at, step.bytes);
    }
    at += step.bytes;
  }
}

}  // namespace pn::tok
