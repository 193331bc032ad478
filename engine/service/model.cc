// SPDX-License-Identifier: Apache-2.0
//
// Loading in order: file, architecture, words, plan, bytes, scheduler; each failure becomes the
// model's state. Requests are checked here before they cost anything.
#include "engine/service/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/service/generation.h"

namespace pn::engine {

Model::Model(ModelConfig config, std::shared_ptr<Die> die, Scheduler& scheduler,
             std::function<void(Model*)> lost)
    : config_(std::move(config)),
      die_(std::move(die)),
      scheduler_(scheduler),
      lost_(std::move(lost)),
      die_id_(die_ ? die_->id : "") {
  facts_.name = config_.name;
  facts_.aliases = config_.aliases;
  facts_.file = config_.file;
  facts_.plugin = config_.plugin->name();
  facts_.die = die_id_;
  facts_.slots = config_.slots;
  progress_.stall_ns = config_.stall_ns;
  progress_.stalled = [this](const Error& error) {
    fail(error);
    if (stalled) stalled();
  };
}

Model::~Model() {
  if (runner_) scheduler_.remove(runner_);
}

void Model::load() {
  if (!loading()) return;
  Result<void> loaded = open_and_load();
  if (!loaded) return fail(loaded.error());
  become_ready();
}

// What a part that knows no file names says, with the file before it.
template <typename T>
Result<T> Model::in_file(Result<T> found) const {
  if (!found && found.error().message.find(config_.file) == std::string::npos)
    found.error().message = config_.file + ": " + found.error().message;
  return found;
}

Result<void> Model::open_and_load() {
  PN_TRY(auto file, gguf::File::open(config_.file));
  PN_TRY(model_, in_file(arch::Model::load(file)));
  PN_TRY(words_, in_file(read_words(*file)));
  const arch::HyperParams& params = model_->params();
  {
    std::lock_guard lock(mutex_);
    facts_.architecture = params.architecture;
    facts_.context_trained = params.context;
    facts_.sampling = words_->sampling;
    facts_.chat_error = words_->chat_error;
  }
  return bring_up();
}

// A copy on the die, up to the scheduler: what a load ends with, and a revival is.
Result<void> Model::bring_up() {
  InstanceOptions options;
  options.model = config_.name;
  options.context = config_.context;
  options.slots = config_.slots;
  options.kv_type = config_.kv_type;
  options.loss = config_.loss;
  options.threads = config_.load_threads;
  PN_TRY(instance_, in_file(Instance::plan(model_, die_, options)));
  {
    std::lock_guard lock(mutex_);
    facts_.context = instance_->context();
    facts_.weight_bytes = instance_->need().weights;
    facts_.kv_bytes = instance_->need().cache();
    facts_.batch_invariant = instance_->batch_invariant();
  }
  generation_ = die_->generation;
  PN_TRY(instance_->load(progress_));
  if (limits_.vocab == 0) {
    limits_ = {instance_->sampler(), instance_->vocab(), instance_->context(), kBiasMax,
               die_id_.c_str()};
  }
  Copy copy = instance_->copy();
  copy.step_deadline_ns = config_.step_deadline_ns;
  copy.lost = [this](uint32_t recovery) { on_lost(recovery); };
  std::shared_ptr<Runner> runner = scheduler_.add(std::move(copy));
  std::lock_guard lock(mutex_);
  runner_ = std::move(runner);
  return {};
}

// Whoever asks from here on hears that the model is loading. Only a process can be started again by
// ourselves; any other recovery is an operator's.
void Model::on_lost(uint32_t recovery) {
  if (config_.plugin->isolation() == nullptr || recovery != PN_RECOVER_RESTART_PROCESS) return;
  {
    std::lock_guard lock(mutex_);
    if (state_ != ModelState::ready) return;
    state_ = ModelState::loading;
  }
  lost_(this);
}

void Model::let_go() {
  std::shared_ptr<Runner> runner;
  {
    std::lock_guard lock(mutex_);
    runner = std::move(runner_);
  }
  if (runner) scheduler_.remove(runner);
  instance_.reset();
  die_.reset();
}

Result<void> Model::revive(std::shared_ptr<Die> die) {
  die_ = std::move(die);
  PN_TRY(bring_up());
  become_ready();
  return {};
}

// A loss between the scheduler's first look and here was told while nobody could act on it.
void Model::become_ready() {
  const hal::Isolation* isolation = config_.plugin->isolation();
  {
    std::lock_guard lock(mutex_);
    if (state_ != ModelState::loading) return;
    state_ = ModelState::ready;
  }
  const bool lost = runner_->counts.lost.load(std::memory_order_acquire);
  if (lost && isolation != nullptr && !isolation->alive()) on_lost(PN_RECOVER_RESTART_PROCESS);
}

void Model::fail(const Error& error) {
  std::lock_guard lock(mutex_);
  if (state_ != ModelState::loading) return;
  state_ = ModelState::failed;
  error_ = error;
}

bool Model::answers_to(const std::string& name) const {
  return name == config_.name ||
         std::find(config_.aliases.begin(), config_.aliases.end(), name) != config_.aliases.end();
}

bool Model::loading() const {
  std::lock_guard lock(mutex_);
  return state_ == ModelState::loading;
}

ModelStatus Model::status() const {
  std::lock_guard lock(mutex_);
  ModelStatus status = facts_;
  status.state = state_;
  status.bytes_done = progress_.done.load();
  status.bytes_total = progress_.total.load();
  if (error_) {
    status.error = error_->message;
    status.no_memory = error_->code == Code::out_of_memory;
    status.lost = error_->code == Code::device_lost;
  }
  if (state_ != ModelState::ready) return status;
  const Runner::Counts& counts = runner_->counts;
  status.running = counts.running.load(std::memory_order_relaxed);
  uint32_t outstanding = counts.outstanding.load(std::memory_order_relaxed);
  status.queued = outstanding - std::min(outstanding, status.running);
  if (counts.lost.load(std::memory_order_acquire)) {
    status.state = ModelState::failed;
    status.lost = true;
    status.error =
        die_id_ + " was lost while it served " + config_.name +
        (config_.plugin->abandoned() ? ": a call into its plugin did not return; restart pantheon"
                                     : ": reset or reopen it, then load the model again");
  }
  return status;
}

const tok::Tokenizer* Model::tokenizer() const {
  std::lock_guard lock(mutex_);
  return state_ == ModelState::ready ? words_->tokenizer.get() : nullptr;
}

const chat::Template* Model::chat_template() const {
  std::lock_guard lock(mutex_);
  return state_ == ModelState::ready && words_->chat ? &*words_->chat : nullptr;
}

uint32_t Model::outstanding() const {
  std::lock_guard lock(mutex_);
  return state_ == ModelState::ready ? runner_->counts.outstanding.load() : 0;
}

Result<std::shared_ptr<Runner>> Model::check_state() const {
  std::lock_guard lock(mutex_);
  const hal::Isolation* isolation = config_.plugin->isolation();
  const bool died =
      isolation != nullptr && (!isolation->alive() || isolation->generation() != generation_);
  if (state_ == ModelState::ready && died) {
    return pn::fail(Code::busy,
                    fmt::format("the process of {} has died and is started again: try again in a "
                                "moment",
                                config_.plugin->name()),
                    "model_loading");
  }
  if (state_ == ModelState::ready) return runner_;
  if (state_ == ModelState::failed) {
    return pn::fail(error_->code,
                    fmt::format("{} is not served: {}", config_.name, error_->message), "model");
  }
  return pn::fail(Code::busy,
                  fmt::format("{} is loading, {} of {} bytes: try again in a moment", config_.name,
                              progress_.done.load(), progress_.total.load()),
                  "model_loading");
}

Result<void> Model::check_request(const GenerateRequest& request) const {
  if (request.prompt.empty()) {
    return pn::fail(Code::invalid, "the prompt is empty: it needs at least one token", "prompt");
  }
  for (int32_t id : request.prompt) {
    if (id >= 0 && static_cast<uint32_t>(id) < limits_.vocab) continue;
    return pn::fail(Code::invalid,
                    fmt::format("the prompt holds token {}, {} has ids from 0 to {}", id,
                                config_.name, limits_.vocab - 1),
                    "prompt");
  }
  if (request.prompt.size() > limits_.context) {
    return pn::fail(Code::invalid,
                    fmt::format("the prompt has {} tokens, {} serves a context of {}: shorten it, "
                                "or raise the model's context",
                                request.prompt.size(), config_.name, limits_.context),
                    "context_length_exceeded");
  }
  for (const std::string& stop : request.stop) {
    if (!stop.empty()) continue;
    return pn::fail(Code::invalid, "a stop string is empty: leave it out", "stop");
  }
  return {};
}

Result<uint64_t> Model::start(GenerateRequest request, std::shared_ptr<Listener> listener) {
  PN_TRY(std::shared_ptr<Runner> runner, check_state());
  PN_TRY(check_request(request));
  auto job = std::make_unique<Job>();
  PN_TRY(job->setup, lane_setup(request.sampling, limits_));
  PN_TRY(job->top, row_candidates(request.top_logprobs, limits_));
  auto prompt = static_cast<uint32_t>(request.prompt.size());
  uint32_t room = limits_.context - prompt;
  job->prompt_tokens = prompt;
  job->max_tokens = request.max_tokens == 0 ? room : std::min(request.max_tokens, room);
  job->bias = std::move(request.sampling.bias);
  job->sink =
      std::make_shared<Generation>(*words_->tokenizer, request, die_id_, std::move(listener));
  job->tokens.reserve(prompt + job->max_tokens);
  job->tokens.assign(request.prompt.begin(), request.prompt.end());
  return scheduler_.submit(runner, std::move(job), config_.queue_max);
}

}  // namespace pn::engine
