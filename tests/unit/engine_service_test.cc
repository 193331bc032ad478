// SPDX-License-Identifier: Apache-2.0
//
// The Service on the fake die: text, stops, limits, endings, states.
#include "engine/service/service.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "engine/plan/instance.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/fake_model.h"
#include "tests/support/fake_plugin.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

constexpr uint64_t kLong = 60'000'000'000ull;

class Ear : public Listener {
 public:
  void delta(Delta&& part) override {
    std::lock_guard lock(mutex_);
    CHECK_FALSE(ended_);
    text += part.text;
    for (TokenInfo& info : part.tokens) tokens.push_back(std::move(info));
  }
  void finished(const Finished& finished) override {
    std::lock_guard lock(mutex_);
    CHECK_FALSE(ended_);
    ended_ = true;
    end = finished;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return ended_; });
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> all;
    for (const TokenInfo& info : tokens) all.push_back(info.id);
    return all;
  }
  std::string text;
  std::vector<TokenInfo> tokens;
  Finished end;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

ModelSpec spec_of() {
  ModelSpec spec;
  spec.name = "serve";
  spec.context = 256;
  return spec;
}

struct Rig {
  explicit Rig(const std::function<void(ModelConfig&)>& change = [](ModelConfig&) {}) {
    FakePlugin::instance().reset();
    ModelConfig model;
    model.name = "m";
    model.aliases = {"default"};
    model.file = model_file(spec_of());
    model.plugin = fake_hal_plugin();
    change(model);
    ServiceConfig config;
    config.models = {model};
    Result<std::unique_ptr<Service>> made = make_service(std::move(config));
    REQUIRE_MESSAGE(made.has_value(), made.error().message);
    service = std::move(*made);
    service->wait_loaded(kLong);
  }
  // The ids to draw after a prompt of n tokens, then eos.
  void script(std::vector<int32_t> ids, size_t prompt = 1) {
    int32_t eos = service->tokenizer("m")->eos();
    FakePlugin::instance().set([=](FakePlugin::Knobs& k) {
      k.script = [=](std::span<const int32_t> seen) {
        size_t at = seen.size() - prompt;
        return at < ids.size() ? ids[at] : eos;
      };
    });
  }
  // Ids of text pieces, one token each, so that tests can write what is drawn as text.
  std::vector<int32_t> bytes(const std::string& text) {
    std::vector<int32_t> ids;
    for (char c : text) {
      char name[8];
      snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned char>(c));
      std::optional<int32_t> id = service->tokenizer("m")->find(name);
      REQUIRE_MESSAGE(id.has_value(), name);
      ids.push_back(*id);
    }
    return ids;
  }
  std::shared_ptr<Ear> ask(GenerateRequest request) {
    auto ear = std::make_shared<Ear>();
    if (request.prompt.empty()) request.prompt = {5};
    Result<uint64_t> id = service->start("m", std::move(request), ear);
    REQUIRE_MESSAGE(id.has_value(), id.error().message);
    REQUIRE(ear->wait());
    return ear;
  }
  std::unique_ptr<Service> service;
};

Error refusal(Service& service, const GenerateRequest& request, const std::string& model = "m") {
  Result<uint64_t> id = service.start(model, request, std::make_shared<Ear>());
  return id ? Error{Code::failed, "accepted", ""} : id.error();
}

}  // namespace

TEST_CASE("service: text until the end-of-generation token, which is counted and not shown") {
  Rig rig;
  rig.script(rig.bytes("Hello!"));
  auto ear = rig.ask({});
  CHECK(ear->text == "Hello!");
  CHECK(ear->end.reason == Finish::stop);
  CHECK(ear->end.completion_tokens == 7);
  CHECK(ear->end.prompt_tokens == 1);
  CHECK(ear->end.timings.die == "fake:0");
  CHECK(ear->ids() == rig.bytes("Hello!"));
  CHECK(ear->tokens[0].bytes.empty());  // no log probabilities were asked for
}

TEST_CASE("service: ignore_eos goes on to the length") {
  Rig rig;
  rig.script(rig.bytes("ab"));
  GenerateRequest request;
  request.ignore_eos = true;
  request.max_tokens = 5;
  auto ear = rig.ask(request);
  CHECK(ear->text == "ab");
  CHECK(ear->end.reason == Finish::length);
  CHECK(ear->end.completion_tokens == 5);
}

TEST_CASE("service: a stop string over token borders swallows its text and its tokens") {
  Rig rig;
  rig.script(rig.bytes("ABCDEFGHIJK"));
  GenerateRequest request;
  request.stop = {"DEFGHIJ"};
  request.logprobs = true;
  auto ear = rig.ask(request);
  CHECK(ear->text == "ABC");
  CHECK(ear->end.reason == Finish::stop);
  CHECK(ear->end.stop_match == "DEFGHIJ");
  CHECK(ear->end.completion_tokens == 10);
  CHECK(ear->ids() == rig.bytes("ABC"));
  rig.script(rig.bytes("DEFGX"));  // a near miss comes out whole
  ear = rig.ask(request);
  CHECK(ear->text == "DEFGX");
  CHECK(ear->end.stop_match.empty());
  CHECK(ear->ids() == rig.bytes("DEFGX"));
}

TEST_CASE("service: what is held back at the length limit is given") {
  Rig rig;
  rig.script(rig.bytes("xDEFG"));
  GenerateRequest request;
  request.stop = {"DEFGHIJ"};
  request.max_tokens = 4;
  auto ear = rig.ask(request);
  CHECK(ear->text == "xDEF");
  CHECK(ear->end.reason == Finish::length);
  CHECK(ear->ids() == rig.bytes("xDEF"));
}

TEST_CASE("service: log probabilities keep the bytes of a split character") {
  Rig rig;
  rig.script(rig.bytes("\xF0\x9F\x98\x80!"));
  GenerateRequest request;
  request.logprobs = true;
  request.top_logprobs = 2;
  auto ear = rig.ask(request);
  CHECK(ear->text == "\xF0\x9F\x98\x80!");
  REQUIRE(ear->tokens.size() == 5);
  std::string joined;
  for (const TokenInfo& info : ear->tokens) joined += info.bytes;
  CHECK(joined == ear->text);
  CHECK(ear->tokens[1].bytes == "\x9F");
  CHECK(ear->tokens[0].logprob == -0.5f);
  REQUIRE(ear->tokens[0].top.size() == 2);
  CHECK(ear->tokens[0].top[0].second == 1.5f - 2.0f);
  CHECK(ear->tokens[0].top[1].second == 0.5f - 2.0f);
}

TEST_CASE("service: a prompt that fits whose answer does not ends as length") {
  Rig rig;
  rig.script(std::vector<int32_t>(1000, 40), 250);
  GenerateRequest request;
  request.prompt.assign(250, 7);
  request.max_tokens = 300;
  auto ear = rig.ask(request);
  CHECK(ear->end.reason == Finish::length);
  CHECK(ear->end.completion_tokens == 6);
  request.prompt.assign(256, 7);
  ear = rig.ask(request);
  CHECK(ear->end.reason == Finish::length);
  CHECK(ear->end.completion_tokens == 0);
  request.prompt.assign(257, 7);
  Error error = refusal(*rig.service, request);
  CHECK(error.code == Code::invalid);
  CHECK(error.param == "context_length_exceeded");
  CHECK(error.message.find("257") != std::string::npos);
  CHECK(error.message.find("256") != std::string::npos);
}

TEST_CASE("service: what cannot be done is refused by name") {
  Rig rig;
  GenerateRequest request;
  CHECK(refusal(*rig.service, request).param == "prompt");
  request.prompt = {1, 512};
  CHECK(refusal(*rig.service, request).param == "prompt");
  request.prompt = {1};
  request.stop = {""};
  CHECK(refusal(*rig.service, request).param == "stop");
  request.stop.clear();
  request.sampling.top_p = 2;
  CHECK(refusal(*rig.service, request).param == "top_p");
  request.sampling.top_p = 1;
  request.top_logprobs = 21;
  CHECK(refusal(*rig.service, request).param == "top_logprobs");
  request.top_logprobs = 0;
  Error unknown = refusal(*rig.service, request, "other");
  CHECK(unknown.code == Code::not_found);
  CHECK(unknown.message.find("other") != std::string::npos);
  CHECK(unknown.message.find("m") != std::string::npos);
}

TEST_CASE("service: names, aliases, and the first model for none") {
  Rig rig;
  CHECK(rig.service->model("m")->name == "m");
  CHECK(rig.service->model("default")->name == "m");
  CHECK(rig.service->model("")->name == "m");
  CHECK_FALSE(rig.service->model("x").has_value());
  ModelStatus status = *rig.service->model("m");
  CHECK(status.state == ModelState::ready);
  CHECK(status.architecture == "llama");
  CHECK(status.plugin == "fake");
  CHECK(status.die == "fake:0");
  CHECK(status.context == 256);
  CHECK(status.context_trained == 256);
  CHECK(status.slots == 4);
  CHECK(status.batch_invariant);
  CHECK(status.bytes_done == status.bytes_total);
  CHECK(status.weight_bytes >= status.bytes_total);
  CHECK(status.kv_bytes == 4 * 4 * 64 * 64);  // slots, pages, tokens, bytes a token
  CHECK(rig.service->chat_template("m") != nullptr);
}

TEST_CASE("service: while loading a request is told to come back, and progress can be seen") {
  FakePlugin::instance().reset();
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.convert_hangs = true; });
  ModelConfig model;
  model.name = "m";
  model.file = model_file(spec_of());
  model.plugin = fake_hal_plugin();
  ServiceConfig config;
  config.models = {model};
  auto service = make_service(std::move(config));
  REQUIRE(service.has_value());
  (*service)->wait_loaded(50'000'000);
  CHECK((*service)->model("m")->state == ModelState::loading);
  CHECK((*service)->tokenizer("m") == nullptr);
  GenerateRequest request;
  request.prompt = {1};
  Error error = refusal(**service, request);
  CHECK(error.code == Code::busy);
  CHECK(error.param == "model_loading");
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.convert_hangs = false; });
  (*service)->wait_loaded(kLong);
  CHECK((*service)->model("m")->state == ModelState::ready);
}

TEST_CASE("service: a load that stalls fails as a state while the server goes on") {
  FakePlugin::instance().reset();
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.convert_hangs = true; });
  ModelConfig model;
  model.name = "m";
  model.file = model_file(spec_of());
  model.plugin = fake_hal_plugin();
  model.stall_ns = 50'000'000;
  ServiceConfig config;
  config.models = {model};
  auto service = make_service(std::move(config));
  REQUIRE(service.has_value());
  for (int i = 0; i < 500 && (*service)->model("m")->state == ModelState::loading; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ModelStatus status = *(*service)->model("m");
  CHECK(status.state == ModelState::failed);
  CHECK(status.error.find("no byte was loaded") != std::string::npos);
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.convert_hangs = false; });
  (*service)->wait_loaded(kLong);
  CHECK((*service)->model("m")->state == ModelState::failed);
}

TEST_CASE("service: a file that cannot be served is that model's failure") {
  Rig rig([](ModelConfig& model) { model.file = "/nonexistent/model.gguf"; });
  ModelStatus status = *rig.service->model("m");
  CHECK(status.state == ModelState::failed);
  CHECK(status.error.find("/nonexistent/model.gguf") != std::string::npos);
  GenerateRequest request;
  request.prompt = {1};
  CHECK(refusal(*rig.service, request).param == "model");
}

TEST_CASE("service: configurations that contradict themselves are refused") {
  CHECK_FALSE(make_service({}).has_value());
  ModelConfig model;
  model.file = "/x/one.gguf";
  ServiceConfig config;
  config.models = {model};
  CHECK(make_service(config).error().message.find("one has no plugin") != std::string::npos);
  config.models[0].plugin = fake_hal_plugin();
  config.models[0].aliases = {"a"};
  config.models.push_back(config.models[0]);
  config.models[1].name = "two";
  auto made = make_service(config);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().message.find("\"a\"") != std::string::npos);
}

TEST_CASE("service: a lost die is a state that names it") {
  Rig rig;
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.lose_at = 3; });
  auto ear = rig.ask({});
  CHECK(ear->end.reason == Finish::error);
  CHECK(ear->end.error->code == Code::device_lost);
  ModelStatus status = *rig.service->model("m");
  CHECK(status.state == ModelState::failed);
  CHECK(status.error.find("fake:0") != std::string::npos);
  GenerateRequest request;
  request.prompt = {1};
  CHECK(refusal(*rig.service, request).code == Code::device_lost);
}

TEST_CASE("service: draining lets answers end, then cancels, and takes nothing new") {
  Rig rig;
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto ear = std::make_shared<Ear>();
  GenerateRequest request;
  request.prompt = {1};
  REQUIRE(rig.service->start("m", request, ear).has_value());
  rig.service->drain(30'000'000);
  REQUIRE(ear->wait());
  CHECK(ear->end.reason == Finish::cancelled);
  CHECK(refusal(*rig.service, request).param == "shutting_down");
}

TEST_CASE("service: cancelling by id") {
  Rig rig;
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto ear = std::make_shared<Ear>();
  GenerateRequest request;
  request.prompt = {1};
  Result<uint64_t> id = rig.service->start("m", request, ear);
  REQUIRE(id.has_value());
  // One snapshot: between two, the request may move from the queue into a step.
  ModelStatus status = *rig.service->model("m");
  CHECK(status.running + status.queued == 1);
  rig.service->cancel(*id);
  REQUIRE(ear->wait());
  CHECK(ear->end.reason == Finish::cancelled);
  rig.service->cancel(*id);
  CHECK(rig.service->model("m")->running == 0);
}
