// SPDX-License-Identifier: Apache-2.0
//
// A symbol is a range of the escaped text, so a pair is looked up as one substring; pairs longer
// than the longest token are not looked up, which keeps the whole linear but for the heap.
#include "models/tokenizer/spm.h"

#include <bit>

#include "models/tokenizer/utf8.h"

namespace pn::tok {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// Ascending for descending scores: the bits of a float order like a sign and magnitude.
uint32_t key_of(float score) {
  uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 and 0 are one
  uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int byte_token_value(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int high = hex(token[3]), low = hex(token[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

Spm::Spm(const Vocabulary& vocabulary, const TokenIds& ids, Options options)
    : ids_(ids), options_(options) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  keys_.assign(vocabulary.tokens.size(), Node::kNone);
  for (size_t id = 0; id < keys_.size(); id++) {
    const std::string& token = vocabulary.tokens[id];
    auto type = TokenType(vocabulary.types[id]);
    if (type == TokenType::byte) {
      int32_t& first = byte_ids_[byte_token_value(token)];
      if (first < 0) first = int32_t(id);
      continue;
    }
    if (type == TokenType::control || type == TokenType::unknown) continue;
    keys_[id] = key_of(vocabulary.scores[id]);
    longest_ = std::max(longest_, token.size());
  }
}

uint32_t Spm::find(std::string_view text) const {
  if (text.size() > longest_) return Node::kNone;
  auto it = ids_.find(text);
  if (it == ids_.end() || keys_[it->second] == Node::kNone) return Node::kNone;
  return uint32_t(it->second);
}

void Spm::encode(std::string_view raw, std::vector<int32_t>& out) const {
  std::string text;
  text.reserve(raw.size() + 3);
  if (options_.add_space_prefix) text += kSpace;
  for (char c : raw) {
    if (c == ' ') {
      text += kSpace;
    } else {
      text += c;
    }
  }
  std::vector<Node> nodes;
  nodes.reserve(text.size());
  for (uint32_t at = 0; at < text.size();) {
    uint32_t bytes = utf8_step(std::string_view(text).substr(at)).bytes;
    uint32_t place = uint32_t(nodes.size());
    nodes.push_back({Node::kNone, at, place - 1, place + 1});
    at += bytes;
  }
  nodes.back().next = Node::kNone;
  auto end_of = [&](uint32_t place) {
    uint32_t next = nodes[place].next;
    return next == Node::kNone ? uint32_t(text.size()) : nodes[next].start;
  };
  auto range = [&](uint32_t from, uint32_t to) {
    return std::string_view(text).substr(from, to - from);
  };
  for (uint32_t i = 0; i < nodes.size(); i++)
    nodes[i].value = find(range(nodes[i].start, end_of(i)));

  std::vector<uint64_t> heap;
  merge_pairs(nodes, heap, [&](uint32_t left, uint32_t right) {
    uint32_t id = find(range(nodes[left].start, end_of(right)));
    return id == Node::kNone ? Pair{} : Pair{keys_[id], id};
  });
  for (uint32_t i = 0; i != Node::kNone; i = nodes[i].next) {
    if (nodes[i].value != Node::kNone) {
      out.push_back(int32_t(nodes[i].value));
      continue;
    }
    bool unknown = false;
    for (char byte : range(nodes[i].start, end_of(i))) {
      int32_t id = byte_ids_[uint8_t(byte)];
      if (id >= 0) out.push_back(id);
      unknown |= id < 0;
    }
    if (unknown && options_.unk >= 0) out.push_back(options_.unk);
  }
}

void Spm::append_piece(std::string_view token, std::string& out) const {
  for (size_t at = 0; at < token.size();) {
    size_t space = std::min(token.find(kSpace, at), token.size());
    out += token.substr(at, space - at);
    if (space < token.size()) out += ' ';
    at = space + kSpace.size();
  }
}

}  // namespace pn::tok
