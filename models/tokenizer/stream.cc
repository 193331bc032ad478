// SPDX-License-Identifier: Apache-2.0
//
// Two buffers: bytes that are no complete character yet (at most 3), and complete characters that
// may be the beginning of a stop string (at most the longest stop string less one byte).
#include "models/tokenizer/stream.h"

#include <algorithm>

#include "models/tokenizer/utf8.h"

namespace pn::tok {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, Options options)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      render_special_(options.render_special),
      at_start_(options.start == Start::fresh && tokenizer.add_space_prefix()) {
  std::erase(stops_, std::string());
}

TextStream::Out TextStream::push(int32_t id) {
  if (stopped_) return {.stopped = true};
  if (tokenizer_.is_eog(id)) return {};
  std::string bytes = tokenizer_.piece(id, render_special_);
  if (at_start_ && !tokenizer_.is_control(id) && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.erase(0, 1);
    at_start_ = false;
  }
  bytes_ += bytes;
  take_bytes(false);
  return advance(false);
}

TextStream::Out TextStream::finish() {
  if (stopped_) return {.stopped = true};
  take_bytes(true);
  return advance(true);
}

void TextStream::take_bytes(bool at_end) {
  size_t at = 0;
  while (at < bytes_.size()) {
    Utf8Step step = utf8_step(std::string_view(bytes_).substr(at));
    if (step.unfinished && !at_end) break;
    append_utf8(step.point, text_);
    at += step.bytes;
  }
  bytes_.erase(0, at);
}

TextStream::Out TextStream::advance(bool at_end) {
  Out out;
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    size_t at = text_.find(stop);
    if (at == std::string::npos) continue;
    size_t to = at + stop.size();
    if (to > end || (to == end && at >= begin)) continue;
    begin = at;
    end = to;
    out.stop = stop;
  }
  if (begin != std::string::npos) {
    stopped_ = out.stopped = true;
    out.text = text_.substr(0, begin);
    text_.clear();
    bytes_.clear();
    return out;
  }
  size_t emit = text_.size() - (at_end ? 0 : held_back());
  out.text = text_.substr(0, emit);
  text_.erase(0, emit);
  return out;
}

size_t TextStream::held_back() const {
  size_t longest = 0;
  std::string_view text = text_;
  for (std::string_view stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; n--) {
      if (text.substr(text.size() - n) == stop.substr(0, n)) longest = n;
    }
  }
  return longest;
}

}  // namespace pn::tok
