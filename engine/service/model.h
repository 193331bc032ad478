// SPDX-License-Identifier: Apache-2.0
//
// One model of the service: from configured to ready, failed or lost.
//
// Owns the file, the words and the copy on its die. Knows the scheduler, not the other models. The
// one idea: what readers see is published once under the lock, and is constant afterwards.
#pragma once

#include <condition_variable>
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
  Model(ModelConfig config, std::shared_ptr<Die> die, Scheduler& scheduler);
  ~Model();

  void load();  // blocks; the loading thread
  void cancel_load() { progress_.cancel.store(true); }
  void fail(const Error& error);

  // [any thread]
  bool answers_to(const std::string& name) const;
  const std::string& name() const { return config_.name; }
  ModelStatus status() const;
  bool loading() const;
  const tok::Tokenizer* tokenizer() const;  // nullptr unless ready, and the next one too
  const chat::Template* chat_template() const;
  Result<uint64_t> start(GenerateRequest request, std::shared_ptr<Listener> listener);
  uint32_t outstanding() const;

 private:
  Result<void> open_and_load();
  template <typename T>
  Result<T> in_file(Result<T> found) const;
  Result<void> check_state() const;
  Result<void> check_request(const GenerateRequest& request) const;

  ModelConfig config_;
  std::shared_ptr<Die> die_;
  Scheduler& scheduler_;
  LoadProgress progress_;

  mutable std::mutex mutex_;
  ModelState state_ = ModelState::loading;  // guarded by mutex_, as are the next two
  std::optional<Error> error_;
  ModelStatus facts_;

  // Written by the loading thread before state_ becomes ready, constant from then on.
  std::unique_ptr<Words> words_;
  std::unique_ptr<Instance> instance_;
  SamplingLimits limits_;
  std::shared_ptr<Runner> runner_;
};

}  // namespace pn::engine
