// SPDX-License-Identifier: Apache-2.0
//
// One model of the service: from configured to ready, failed or lost.
//
// Owns the file, the words and the copy on its die. Knows the scheduler, not the other models. The
// one idea: what readers see is published once under the lock, and is constant afterwards.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/plan/instance.h"
#include "engine/sample/params.h"
#include "engine/schedule/scheduler.h"
#include "engine/service/service.h"
#include "engine/service/words.h"

namespace pn::engine {

class Model {
 public:
  // lost: told on the scheduler's thread that the model's process is gone and it can be revived.
  Model(ModelConfig config, std::shared_ptr<Die> die, Scheduler& scheduler,
        std::function<void(Model*)> lost);
  ~Model();

  void load();  // blocks; the loading thread
  // On the loading thread, once: no byte has moved for stall_ns, and it may never come back.
  std::function<void()> stalled;
  void cancel_load() { progress_.cancel.store(true); }
  void fail(const Error& error);
  // After a loss, on the loading thread: lets go of what the lost process held, then loads again.
  void let_go();
  Result<void> revive(std::shared_ptr<Die> die);
  const ModelConfig& config() const { return config_; }
  uint32_t generation() const { return generation_; }  // of the process that it last loaded to

  // [any thread]
  bool answers_to(const std::string& name) const;
  const std::string& name() const { return config_.name; }
  const std::shared_ptr<hal::Plugin>& plugin() const { return config_.plugin; }
  ModelStatus status() const;
  bool loading() const;
  const tok::Tokenizer* tokenizer() const;  // nullptr unless ready, and the next one too
  const chat::Template* chat_template() const;
  Result<uint64_t> start(GenerateRequest request, std::shared_ptr<Listener> listener);
  uint32_t outstanding() const;

 private:
  Result<void> open_and_load();
  Result<void> bring_up();
  void become_ready();
  void on_lost(uint32_t recovery);
  template <typename T>
  Result<T> in_file(Result<T> found) const;
  Result<std::shared_ptr<Runner>> check_state() const;
  Result<void> check_request(const GenerateRequest& request) const;

  ModelConfig config_;
  std::shared_ptr<Die> die_;
  Scheduler& scheduler_;
  const std::function<void(Model*)> lost_;
  const std::string die_id_;
  LoadProgress progress_;

  mutable std::mutex mutex_;
  ModelState state_ = ModelState::loading;  // guarded by mutex_, as are the next two
  std::optional<Error> error_;
  ModelStatus facts_;

  // Written by the loading thread before state_ becomes ready, constant from then on; what a
  // revival replaces is the loading thread's, and runner_ guarded by mutex_ too.
  std::shared_ptr<const arch::Model> model_;
  std::atomic<uint32_t> generation_{0};
  std::unique_ptr<Words> words_;
  std::unique_ptr<Instance> instance_;
  SamplingLimits limits_;
  std::shared_ptr<Runner> runner_;
};

}  // namespace pn::engine
