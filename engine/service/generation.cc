// SPDX-License-Identifier: Apache-2.0
//
// Called on the scheduler's thread, a token at a time. Owns the order of what a listener hears;
// knows nothing of why a sequence ended but the reason it is given.
#include "engine/service/generation.h"

#include <utility>

namespace pn::engine {

Generation::Generation(const tok::Tokenizer& tokenizer, const GenerateRequest& request,
                       std::string die, std::shared_ptr<Listener> listener)
    : tokenizer_(tokenizer),
      stream_(tokenizer, request.stop),
      listener_(std::move(listener)),
      die_(std::move(die)),
      prompt_tokens_(static_cast<uint32_t>(request.prompt.size())),
      ignore_eos_(request.ignore_eos),
      logprobs_(request.logprobs || request.top_logprobs != 0) {}

bool Generation::token(const Drawn& drawn) {
  if (!ignore_eos_ && tokenizer_.is_eog(drawn.id)) return false;
  std::string piece = tokenizer_.piece(drawn.id, false);
  held_.push_back({info_of(drawn), pushed_});
  pushed_ += piece.size();
  if (logprobs_) held_.back().info.bytes = std::move(piece);
  tok::TextStream::Out out = stream_.push(drawn.id);
  hand_over(std::move(out.text), false);
  if (!out.stopped) return true;
  stopped_ = true;
  stop_match_ = std::move(out.stop);
  return false;
}

void Generation::ended(const Ended& end) {
  if (!stopped_ && end.reason != Finish::error) {
    tok::TextStream::Out out = stream_.finish();
    hand_over(std::move(out.text), !out.stopped);
    if (out.stopped) stop_match_ = std::move(out.stop);
  }
  Finished finished;
  finished.reason = end.reason;
  finished.error = end.error;
  finished.prompt_tokens = prompt_tokens_;
  finished.cached_tokens = end.cached_tokens;
  finished.completion_tokens = end.completion_tokens;
  finished.stop_match = stop_match_;
  finished.timings = {end.queued_ns, end.prompt_ns, end.decode_ns, die_};
  listener_->finished(finished);
}

TokenInfo Generation::info_of(const Drawn& drawn) const {
  TokenInfo info;
  info.id = drawn.id;
  if (!logprobs_) return info;
  info.logprob = drawn.logprob;
  info.top.reserve(drawn.top.size());
  for (const pn_candidate& candidate : drawn.top) {
    info.top.emplace_back(candidate.id, candidate.logit - drawn.log_sum);
  }
  return info;
}

void Generation::hand_over(std::string text, bool all_tokens) {
  emitted_ += text.size();
  Delta delta;
  delta.text = std::move(text);
  while (!held_.empty() && (all_tokens || held_.front().start < emitted_ || emitted_ >= pushed_)) {
    delta.tokens.push_back(std::move(held_.front().info));
    held_.pop_front();
  }
  if (!delta.text.empty() || !delta.tokens.empty()) listener_->delta(std::move(delta));
}

}  // namespace pn::engine
