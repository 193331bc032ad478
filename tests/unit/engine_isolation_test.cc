// SPDX-License-Identifier: Apache-2.0
//
// Models on a plugin whose process dies: one request's error, loading again, ready again; and given
// up when it dies again and again. On the null plugin: what it answers does not matter here.
#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/service/service.h"
#include "models/gguf/file.h"
#include "tests/support/fake_model.h"
#include "tests/support/isolated.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

class Ear : public Listener {
 public:
  void delta(Delta&&) override {
    std::lock_guard lock(mutex_);
    ++parts_;
    changed_.notify_all();
  }
  void finished(const Finished& finished) override {
    std::lock_guard lock(mutex_);
    end_ = finished;
    ended_ = true;
    changed_.notify_all();
  }
  Finished wait() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60), [this] { return ended_; }));
    return end_;
  }
  void wait_parts() {
    std::unique_lock lock(mutex_);
    REQUIRE(
        changed_.wait_for(lock, std::chrono::seconds(60), [this] { return ended_ || parts_ > 3; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int parts_ = 0;
  bool ended_ = false;
  Finished end_;
};

struct Rig {
  TempDir folder;
  std::shared_ptr<hal::Plugin> plugin;
  std::unique_ptr<Service> service;

  Rig(hal::Options options, int models) {
    plugin = load(isolated_request(folder, "tests/fixtures/fragile.so", std::move(options)));
    ServiceConfig config;
    for (int i = 0; i < models; ++i) {
      ModelSpec spec;
      spec.name = "isolated" + std::to_string(i);
      spec.context = 8192;
      ModelConfig model;
      model.name = std::to_string(i);
      model.file = model_file(spec);
      model.plugin = plugin;
      config.models.push_back(std::move(model));
    }
    auto made = make_service(std::move(config));
    REQUIRE_MESSAGE(made, made.error().message);
    service = std::move(*made);
    service->wait_loaded(kLongNs);
  }
  // Tries again while the model loads.
  std::shared_ptr<Ear> ask(const std::string& model, uint32_t tokens) {
    GenerateRequest request;
    request.prompt = {1};
    request.sampling.temperature = 0;
    request.max_tokens = tokens;
    request.ignore_eos = true;
    auto ear = std::make_shared<Ear>();
    for (int i = 0; i < 6000; ++i) {
      Result<uint64_t> id = service->start(model, request, ear);
      if (id) return ear;
      if (id.error().code != Code::busy) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return nullptr;
  }
};

}  // namespace

TEST_CASE("isolation: two models of a process that was killed serve again") {
  Rig rig({{"deed", "none"}}, 2);
  for (uint32_t round = 1; round <= 2; ++round) {
    auto running = rig.ask("0", 8000);
    REQUIRE(running);
    running->wait_parts();
    const tok::Tokenizer* words = rig.service->tokenizer("1");
    ::kill(rig.plugin->isolation()->pid(), SIGKILL);
    const Finished end = running->wait();
    REQUIRE(end.reason == Finish::error);
    CHECK(end.error->code == Code::device_lost);
    CHECK_MESSAGE(end.error->message.find("SIGKILL") != std::string::npos, end.error->message);
    for (const char* model : {"1", "0"}) {
      auto next = rig.ask(model, 5);
      REQUIRE(next);
      CHECK(next->wait().completion_tokens == 5);
    }
    CHECK(rig.plugin->isolation()->generation() == round + 1);
    CHECK(rig.service->tokenizer("1") == words);  // lives as long as the service
  }
}

TEST_CASE("isolation: a process that dies four times within a minute is given up") {
  Rig rig({{"deed", "exit_in_submit"}, {"at", "3"}}, 1);
  for (int i = 0; i < 4; ++i) {
    auto ear = rig.ask("0", 50);
    REQUIRE(ear);
    CHECK(ear->wait().reason == Finish::error);
  }
  rig.service->wait_loaded(kLongNs);
  const ModelStatus status = *rig.service->model("0");
  CHECK(status.state == ModelState::failed);
  CHECK_MESSAGE(status.error.find("exit(7)") != std::string::npos, status.error);
  CHECK(rig.ask("0", 5) == nullptr);
}
