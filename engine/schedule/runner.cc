// SPDX-License-Identifier: Apache-2.0
//
// The life of sequences: waiting, admitted, read, ended; and of the queue that runs them.
// What goes into a step is in batch.cc.
#include "engine/schedule/runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hal/host/watch.h"

namespace pn::engine {
namespace {

// A step may take this long, this much for each of its tokens, or 20 times what is usual: a chunk
// of 512 tokens of an 8B model takes minutes on two cores that others use too.
constexpr uint64_t kStepDeadlineNs = 60'000'000'000ull;
constexpr uint64_t kTokenDeadlineNs = 1'000'000'000;
constexpr uint64_t kDeadlineTimes = 20;

StepArrays::Limits limits_of(const Copy& copy) {
  uint32_t lane_pages = (copy.context + copy.page_tokens - 1) / copy.page_tokens;
  auto caches = static_cast<uint32_t>(copy.caches.size());
  return {.tokens = copy.shapes.back().tokens,
          .lanes = copy.lanes,
          .history = copy.lanes * copy.context,
          .pages = caches * copy.lanes * (lane_pages + 1),
          .bytes = copy.step_bytes_max};
}

Error queue_error(const Copy& copy, bool lost, uint32_t* recovery) {
  pn_error found{};
  found.struct_size = sizeof(found);
  {
    const hal::WatchedCall watched(copy.api, copy.patience);
    copy.api->queue_error(copy.queue, &found);
  }
  *recovery = found.recovery;
  std::string text = found.message[0] != 0 ? found.message : "no reason given";
  return {lost ? Code::device_lost : Code::failed,
          copy.die + (lost ? " was lost" : " failed a step") + " while running " + copy.model +
              ": " + text,
          ""};
}

}  // namespace

Runner::Runner(Copy copy)
    : copy_(std::move(copy)),
      pages_(copy_.page_count),
      prefix_(copy_.page_count, copy_.page_tokens),
      pace_(copy_.predicted_ns),
      step_(limits_of(copy_)),
      lanes_(copy_.lanes),
      value_(copy_.queue_value),
      read_(copy_.queue_value) {
  for (Sequence& sequence : lanes_) {
    sequence.pages.reserve((copy_.context + copy_.page_tokens - 1) / copy_.page_tokens);
  }
  order_.reserve(copy_.lanes);
  advances_.reserve(copy_.lanes);
  commands_.reserve(copy_.lanes + 1);
  for (Flight& flight : flights_) flight.rows.reserve(copy_.lanes);
}

Runner::~Runner() { fail({Code::cancelled, copy_.model + " was taken out of service", ""}); }

void Runner::enqueue(std::unique_ptr<Job> job) {
  if (error_) return end_unstarted(std::move(job), Finish::error, *error_);
  if (job->max_tokens == 0) return end_unstarted(std::move(job), Finish::length);
  line_.push_back(std::move(job));
}

void Runner::cancel(uint64_t id) {
  for (uint32_t lane : order_) {
    if (lanes_[lane].job->id == id) return end(lane, Finish::cancelled);
  }
  auto at = std::find_if(line_.begin(), line_.end(), [id](const auto& j) { return j->id == id; });
  if (at == line_.end()) return;
  std::unique_ptr<Job> job = std::move(*at);
  line_.erase(at);
  end_unstarted(std::move(job), Finish::cancelled);
}

void Runner::cancel_all() {
  while (!order_.empty()) end(order_.front(), Finish::cancelled);
  while (!line_.empty()) {
    std::unique_ptr<Job> job = std::move(line_.front());
    line_.pop_front();
    end_unstarted(std::move(job), Finish::cancelled);
  }
}

bool Runner::admit_first(uint64_t now_ns) {
  if (line_.empty() || live_ == copy_.lanes) return false;
  uint32_t lane = 0;
  while (lanes_[lane].live()) ++lane;
  Sequence& sequence = lanes_[lane];
  if (!take_pages(sequence, *line_.front())) return false;
  sequence.job = std::move(line_.front());
  line_.pop_front();
  sequence.epoch = next_epoch_++;
  sequence.pages_sent = 0;
  sequence.ran = sequence.reused;
  sequence.drawn = 0;
  sequence.given = 0;
  sequence.setup_sent = false;
  sequence.bias_list = (sequence.bias_list + 1) % kStepDepth;  // the old list may be in use yet
  sequence.first_step_ns = now_ns;
  sequence.first_token_ns = 0;
  sequence.last_token_ns = 0;
  order_.push_back(lane);
  ++live_;
  counts.running.store(live_, std::memory_order_relaxed);
  return true;
}

bool Runner::take_pages(Sequence& sequence, const Job& job) {
  uint32_t tokens = job.prompt_tokens + job.max_tokens;
  uint32_t need = (tokens + copy_.page_tokens - 1) / copy_.page_tokens;
  sequence.pages.resize(need);
  uint32_t reused = reusable_pages(sequence, job);
  uint32_t room = pages_.available();
  for (uint32_t i = 0; i < reused; ++i) room -= pages_.holders(sequence.pages[i]) == 0 ? 1 : 0;
  if (room < need - reused) return false;
  for (uint32_t i = 0; i < reused; ++i) pages_.share(sequence.pages[i]);
  for (uint32_t i = reused; i < need; ++i) {
    sequence.pages[i] = pages_.take();
    prefix_.forget(sequence.pages[i]);
  }
  sequence.reused = reused * copy_.page_tokens;
  return true;
}

// The last prompt token always runs: its row draws the first id. A reuse whose page edits and
// history would not fit a step is not taken.
uint32_t Runner::reusable_pages(Sequence& sequence, const Job& job) const {
  if (!copy_.reuse_prefix) return 0;
  std::span<const int32_t> prompt(job.tokens.data(), job.prompt_tokens - 1);
  uint32_t found = prefix_.find(prompt, sequence.pages);
  uint64_t bytes = found * copy_.caches.size() * sizeof(pn_pages) + sizeof(pn_lane);
  uint32_t history = std::min(job.setup.penalty_tokens, found * copy_.page_tokens);
  bytes += history * sizeof(int32_t);
  return copy_.step_bytes_max != 0 && bytes > copy_.step_bytes_max / 2 ? 0 : found;
}

// Tokens past the last one given may lie in the last page: only full pages of known tokens count.
void Runner::index_pages(Sequence& sequence) {
  if (!copy_.reuse_prefix) return;
  size_t known = std::min<size_t>(sequence.ran, sequence.job->tokens.size());
  std::span<const uint32_t> full(sequence.pages.data(), known / copy_.page_tokens);
  prefix_.add(sequence.job->tokens, full);
}

void Runner::end(uint32_t lane, Finish reason, std::optional<Error> error) {
  Sequence& sequence = lanes_[lane];
  if (!error) index_pages(sequence);
  for (size_t i = sequence.pages.size(); i-- > 0;) {
    uint32_t page = sequence.pages[i];
    pages_.release(page, prefix_.indexed(page));
  }
  sequence.pages.clear();
  sequence.epoch = 0;
  std::unique_ptr<Job> job = std::move(sequence.job);
  order_.erase(std::find(order_.begin(), order_.end(), lane));
  --live_;
  counts.running.store(live_, std::memory_order_relaxed);
  counts.outstanding.fetch_sub(1, std::memory_order_relaxed);

  Ended ended{.reason = reason, .error = std::move(error)};
  ended.cached_tokens = sequence.reused;
  ended.completion_tokens = sequence.given;
  ended.queued_ns = sequence.first_step_ns - job->arrived_ns;
  if (sequence.first_token_ns != 0) {
    ended.prompt_ns = sequence.first_token_ns - sequence.first_step_ns;
    ended.decode_ns = sequence.last_token_ns - sequence.first_token_ns;
  }
  job->sink->ended(ended);
}

void Runner::end_unstarted(std::unique_ptr<Job> job, Finish reason, std::optional<Error> error) {
  counts.outstanding.fetch_sub(1, std::memory_order_relaxed);
  job->sink->ended({.reason = reason, .error = std::move(error)});
}

bool Runner::collect(const pn_progress& progress, uint64_t now_ns) {
  if (flight_count_ == 0) return false;
  if (progress.state == PN_QUEUE_LOST) {
    queue_failed(true);
    return true;
  }
  bool changed = false;
  while (flight_count_ != 0 && read_ + 1 <= progress.completed) {
    const Flight& flight = flight_of(read_ + 1);
    uint64_t start = std::max(flight.submitted_ns, last_done_ns_);
    pace_.measured(flight.shape, flight.tokens, now_ns - std::min(start, now_ns));
    last_done_ns_ = now_ns;
    ++read_;
    --flight_count_;
    read(flight, now_ns);
    changed = true;
  }
  if (progress.state == PN_QUEUE_FAILED) {
    queue_failed(false);
    return true;
  }
  check_deadline(now_ns);
  return changed;
}

void Runner::read(const Flight& flight, uint64_t now_ns) {
  for (uint32_t i = 0; i < flight.rows.size(); ++i) {
    const FlightRow& row = flight.rows[i];
    if (lanes_[row.lane].epoch != row.epoch) {
      counts.dropped_rows.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    const std::byte* at = copy_.results.host + record_offset(flight.value, i);
    pn_result result;
    std::memcpy(&result, at, sizeof(result));
    auto* top = reinterpret_cast<const pn_candidate*>(at + sizeof(result));
    Drawn drawn{result.id, result.logprob, result.log_sum, {top, std::min(result.top, row.top)}};
    deliver(row.lane, drawn, now_ns);
  }
}

void Runner::deliver(uint32_t lane, const Drawn& drawn, uint64_t now_ns) {
  Sequence& sequence = lanes_[lane];
  if (drawn.id < 0) {
    return end(
        lane, Finish::error,
        Error{Code::failed,
              copy_.model + " gave no id at position " +
                  std::to_string(sequence.job->tokens.size()) + ": its logits are not finite there",
              ""});
  }
  if (sequence.given == 0) sequence.first_token_ns = now_ns;
  sequence.last_token_ns = now_ns;
  ++sequence.given;
  sequence.job->tokens.push_back(drawn.id);
  counts.drawn_tokens.fetch_add(1, std::memory_order_relaxed);
  if (sequence.given == 1) index_pages(sequence);
  if (!sequence.job->sink->token(drawn)) return end(lane, Finish::stop);
  if (sequence.given == sequence.job->max_tokens) end(lane, Finish::length);
}

// Lost: everything ends. Failed: what was running ends, the queue is replaced, and the waiting
// ones run on it; no cached page is trusted any more.
void Runner::queue_failed(bool lost) {
  uint32_t recovery = PN_RECOVER_OPERATOR;
  Error error = queue_error(copy_, lost, &recovery);
  if (lost) return fail(std::move(error), recovery);
  flight_count_ = 0;
  read_ = value_;
  end_live(error);
  prefix_.clear();
  pages_.drop_cached();
  if (!copy_.replace) return fail(std::move(error));
  Result<Copy::Replacement> fresh = copy_.replace();
  if (!fresh) return fail(std::move(fresh).error());
  copy_.queue = fresh->queue;
  copy_.program = fresh->program;
}

void Runner::end_live(const Error& error) {
  while (!order_.empty()) end(order_.front(), Finish::error, error);
}

void Runner::fail(Error error, uint32_t recovery) {
  if (error_) return;
  error_ = std::move(error);
  counts.lost.store(true, std::memory_order_release);
  if (copy_.lost && error_->code == Code::device_lost) copy_.lost(recovery);
  flight_count_ = 0;
  read_ = value_;
  end_live(*error_);
  while (!line_.empty()) {
    std::unique_ptr<Job> job = std::move(line_.front());
    line_.pop_front();
    end_unstarted(std::move(job), Finish::error, *error_);
  }
}

void Runner::check_deadline(uint64_t now_ns) {
  if (flight_count_ == 0) return;
  const Flight& flight = flight_of(read_ + 1);
  uint64_t start = std::max(flight.submitted_ns, last_done_ns_);
  uint64_t least = copy_.step_deadline_ns != 0 ? copy_.step_deadline_ns : kStepDeadlineNs;
  uint64_t usual = kDeadlineTimes * pace_.expected_ns(flight.shape, flight.tokens);
  uint64_t deadline = std::max({least, usual, (flight.tokens - 1) * kTokenDeadlineNs});
  if (now_ns < start + deadline) return;
  fail({Code::device_lost,
        copy_.die + " has not finished a step of " + copy_.model + " for " +
            std::to_string((now_ns - start) / 1'000'000) +
            " ms: it is taken as lost; reset or reopen it",
        ""},
       PN_RECOVER_RESTART_PROCESS);
}

uint64_t Runner::nap_ns(uint64_t now_ns) const {
  const Flight& flight = flight_of(read_ + 1);
  uint64_t start = std::max(flight.submitted_ns, last_done_ns_);
  return Pace::nap_ns(pace_.expected_ns(flight.shape, flight.tokens),
                      now_ns - std::min(start, now_ns));
}

}  // namespace pn::engine
