// SPDX-License-Identifier: Apache-2.0
//
// One generation: what a caller asks for and what comes back. The seam between the engine and those
// who speak with users (serve, run, bench).
//
// Owns the request and result types and the Service interface. Knows no HTTP, no templates, no
// plugin. The one idea: a caller hands over token ids and gets text deltas on a Listener that never
// blocks the scheduler; ids, stops, UTF-8 and limits are settled below this line once for
// everybody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::tok {
class Tokenizer;
}
namespace pn::chat {
class Template;
}

namespace pn::engine {

struct SamplingParams {
  float temperature = 0.8f;     // 0: greedy
  float top_p = 0.95f;          // 1 off
  float min_p = 0.05f;          // 0 off
  uint32_t top_k = 40;          // 0 off
  float repeat_penalty = 1.0f;  // 1 off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_tokens = 64;                 // last tokens that count; whole context: UINT32_MAX
  std::vector<std::pair<int32_t, float>> bias;  // token id, added to its logit
  uint64_t seed = 0;                            // counter-based: equal seed and prompt, equal text
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one id
  SamplingParams sampling;
  uint32_t max_tokens = 0;        // 0: what is left of the context
  std::vector<std::string> stop;  // matched on text, over token borders; not part of the answer
  bool ignore_eos = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;  // 0..20
};

struct TokenInfo {
  int32_t id = 0;
  std::string bytes;                           // raw, may be part of a UTF-8 sequence
  float logprob = 0;                           // natural log, raw logits
  std::vector<std::pair<int32_t, float>> top;  // id, logprob, falling
};

struct Delta {
  std::string text;               // complete UTF-8, never a part of a stop string
  std::vector<TokenInfo> tokens;  // filled when logprobs were asked for, else ids only
};

enum class Finish { stop, length, cancelled, error };

struct Timings {           // nanoseconds
  uint64_t queued_ns = 0;  // submit to first step
  uint64_t prompt_ns = 0;  // first step to first token
  uint64_t decode_ns = 0;  // first token to last
  std::string die;         // stable id of the die that ran it
};

struct Finished {
  Finish reason = Finish::stop;
  std::optional<Error> error;  // with Finish::error
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;      // of the prompt, reused from earlier requests
  uint32_t completion_tokens = 0;  // ids drawn, the end-of-generation id included
  std::string stop_match;          // the stop string that ended it, empty otherwise
  Timings timings;
};

// Called on the scheduler's thread, in order; must not block or throw. finished() comes exactly
// once, last; nothing follows it.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void delta(Delta&& part) = 0;
  virtual void finished(const Finished& end) = 0;
};

enum class ModelState { loading, ready, failed };

struct ModelStatus {
  std::string name;
  std::vector<std::string> aliases;
  std::string file;
  std::string architecture;
  ModelState state = ModelState::loading;
  uint64_t bytes_done = 0;  // of the load
  uint64_t bytes_total = 0;
  std::string error;       // with ModelState::failed
  bool no_memory = false;  // it failed because it does not fit
  bool lost = false;       // it served until its die was lost
  std::string plugin;      // name in its ELF note
  std::string die;
  uint32_t context = 0;  // tokens a request may hold, prompt and answer
  uint32_t context_trained = 0;
  uint32_t slots = 0;  // sequences alive at once
  uint32_t running = 0;
  uint32_t queued = 0;
  uint64_t weight_bytes = 0;  // as laid out on the die
  uint64_t kv_bytes = 0;
  bool batch_invariant = false;
  std::string chat_error;   // why there is no chat_template(): the file's does not parse
  SamplingParams sampling;  // defaults: the file's general.sampling.* over ours
};

// All models of this process. Thread-safe.
class Service {
 public:
  virtual ~Service() = default;
  virtual std::vector<ModelStatus> models() const = 0;
  // Resolves a name or alias; empty names the first model. nullptr when unknown.
  virtual std::optional<ModelStatus> model(const std::string& name) const = 0;
  // For READY models; both live as long as the Service. Template is ChatML when the file has none,
  // nullptr when ModelStatus::chat_error says why.
  virtual const tok::Tokenizer* tokenizer(const std::string& model) const = 0;
  virtual const chat::Template* chat_template(const std::string& model) const = 0;
  // Errors: not_found, busy (loading: param "model_loading"; queue full: param "capacity_busy"),
  // invalid with param "context_length_exceeded" when the prompt alone does not fit.
  virtual Result<uint64_t> start(const std::string& model, GenerateRequest request,
                                 std::shared_ptr<Listener> listener) = 0;
  // Ends it within one step; finished(cancelled) follows unless it had ended. Unknown ids are
  // ignored.
  virtual void cancel(uint64_t id) = 0;
  // Why this process should be restarted, empty while it should not: a plugin hangs.
  virtual std::string restart_reason() const { return ""; }
  // What is served with less than was meant: dies that failed their check.
  virtual std::vector<std::string> notes() const { return {}; }
  // Blocks until nothing is loading, or the deadline passed.
  virtual void wait_loaded(uint64_t timeout_ns) = 0;
  // Refuses new requests, lets running ones end until the deadline, then cancels them.
  virtual void drain(uint64_t timeout_ns) = 0;
};

}  // namespace pn::engine
