// SPDX-License-Identifier: Apache-2.0
//
// Fuzz entry for the tokenizer: a vocabulary, a text in parts, stop strings and ids, all from the
// input. Build with clang -fsanitize=fuzzer,address and the tokenizer's library. Broken promises
// trap, so that a fuzzer keeps the input.
//
// Input: 1 byte flags and pre-tokenizer, 1 byte count of extra tokens, for each of these 1 byte
// type, 1 byte length and its bytes; the rest is the text, cut into parts at each 0xF8.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/tokenizer/stream.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"

namespace {

using namespace pn::tok;

struct Input {
  const uint8_t* at;
  const uint8_t* end;
  uint8_t byte() { return at < end ? *at++ : 0; }
  std::string bytes(size_t n) {
    if (n > size_t(end - at)) n = size_t(end - at);
    std::string out(reinterpret_cast<const char*>(at), n);
    at += n;
    return out;
  }
};

void must(bool holds) {
  if (!holds) __builtin_trap();
}

void add(Vocabulary& v, const std::string& text, int type) {
  v.tokens.push_back(text);
  v.types.push_back(type);
  v.scores.push_back(float(v.tokens.size() % 7));
}

Vocabulary make_vocabulary(Input& in) {
  static const char* const kPre[] = {"gpt-2",    "llama-bpe", "qwen2",  "qwen35", "smollm",
                                     "minicpm5", "tekken",    "gpt-4o", "falcon", "default"};
  Vocabulary v;
  uint8_t flags = in.byte();
  v.model = flags & 0x80 ? "llama" : "gpt2";
  v.pre = kPre[(flags & 0x1F) % std::size(kPre)];
  if (flags & 0x20) v.add_space_prefix = false;
  v.add_bos = (flags & 0x40) != 0;
  v.bos = v.eos = 0;
  add(v, "<s>", int(TokenType::control));
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; byte++) {
    static const char kDigits[] = "0123456789ABCDEF";
    if (flags & 0x80) {
      add(v, {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'}, int(TokenType::byte));
      continue;
    }
    bool self = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    std::string spelling;
    append_utf8(self ? char32_t(byte) : next++, spelling);
    add(v, spelling, int(TokenType::normal));
  }
  for (int n = in.byte() % 32; n > 0; n--) {
    int type = in.byte() % 5;
    std::string text = in.bytes(in.byte() % 16);
    // A byte whose only token became a control token has no way into plain text.
    if (std::find(v.tokens.begin(), v.tokens.end(), text) != v.tokens.end()) continue;
    if (type < 4) add(v, text, type + 1);
    if (type == 4 || type == 0) v.merges.push_back(text);
  }
  return v;
}

std::vector<Tokenizer::Part> cut(const std::string& text) {
  std::vector<Tokenizer::Part> parts;
  size_t from = 0;
  for (bool special = true; from <= text.size(); special = !special) {
    size_t to = std::min(text.find('\xF8', from), text.size());
    parts.push_back({std::string_view(text).substr(from, to - from), special});
    from = to + 1;
  }
  return parts;
}

void check_stream(const Tokenizer& t, const std::vector<int32_t>& ids) {
  TextStream stream(t, {}, {.start = TextStream::Start::fresh, .render_special = false});
  TextStream stopping(t, {"ab", "</", "aab"});
  std::string text, shown;
  for (int32_t id : ids) {
    text += stream.push(id).text;
    shown += stopping.push(id).text;
  }
  text += stream.finish().text;
  shown += stopping.finish().text;
  must(is_utf8(text) && is_utf8(shown));
  must(shown.find("ab") == std::string::npos && shown.find("</") == std::string::npos);
  must(text == repair_utf8(t.decode(ids, false), {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in{data, data + size};
  auto made = Tokenizer::create(make_vocabulary(in));
  if (!made) {
    must(!made.error().message.empty());
    return 0;
  }
  const Tokenizer& t = **made;
  std::string text = in.bytes(size);
  auto ids = t.encode(cut(text), true);
  for (int32_t id : ids) must(id >= 0 && id < t.size());
  check_stream(t, ids);

  auto plain = t.encode(text, false, false);
  bool shown = true;  // a user-defined token that ends answers is cut, and its text is not shown
  for (int32_t id : plain) {
    must(!t.is_control(id));
    shown = shown && !t.is_eog(id);
  }
  if (t.vocabulary().model == "gpt2" && shown)
    must(t.decode(plain, false) == repair_utf8(text, {}));
  return 0;
}
