// SPDX-License-Identifier: Apache-2.0
//
// The whole engine on real arithmetic: the cpu plugin of this build, found by path. Greedy ids are
// those of the golden files; an answer is the same alone and in any company.
//
// Needs backends/cpu in the build tree and the shared models; says so and skips without them.
#include <doctest/doctest.h>
#include <stdio.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/service/bench.h"
#include "engine/service/service.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/fake_model.h"

using namespace pn;
using namespace pn::engine;

namespace {

constexpr uint64_t kLong = 300'000'000'000ull;

std::shared_ptr<hal::Plugin> cpu_plugin() {
  const char* root = getenv("PN_BUILD_ROOT");
  std::string path = std::string(root != nullptr ? root : "build") + "/backends/cpu/backend_cpu.so";
  if (!std::filesystem::exists(path)) {
    printf("SKIP: there is no %s\n", path.c_str());
    return nullptr;
  }
  hal::LoadRequest request;
  request.plugin = std::filesystem::absolute(path).string();
  Result<std::shared_ptr<hal::Plugin>> plugin = hal::Plugin::load(request);
  REQUIRE_MESSAGE(plugin.has_value(), plugin.error().message);
  return *plugin;
}

std::string shared_folder() {
  const char* given = getenv("PN_SHARED");
  const char* root = getenv("PN_SOURCE_ROOT");
  std::string path =
      given != nullptr ? given : std::string(root != nullptr ? root : ".") + "/../shared";
  if (std::filesystem::exists(path + "/models")) return path + "/models/";
  printf("SKIP: there is no %s/models\n", path.c_str());
  return "";
}

class Ear : public Listener {
 public:
  void delta(Delta&& part) override {
    for (const TokenInfo& info : part.tokens) ids.push_back(info.id);
  }
  void finished(const Finished& finished) override {
    std::lock_guard lock(mutex_);
    end = finished;
    ended_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(120), [this] { return ended_; }));
  }
  std::vector<int32_t> ids;
  Finished end;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

Result<std::unique_ptr<Service>> serve(const std::string& file, uint32_t slots, uint32_t kv_type) {
  ModelConfig model;
  model.name = "m";
  model.file = file;
  model.plugin = cpu_plugin();
  model.slots = slots;
  model.kv_type = kv_type;
  model.queue_max = 1000;
  ServiceConfig config;
  config.models = {model};
  PN_TRY(std::unique_ptr<Service> service, make_service(std::move(config)));
  service->wait_loaded(kLong);
  return service;
}

std::shared_ptr<Ear> ask(Service& service, const GenerateRequest& request) {
  auto ear = std::make_shared<Ear>();
  Result<uint64_t> id = service.start("m", request, ear);
  REQUIRE_MESSAGE(id.has_value(), id.error().message);
  return ear;
}

GenerateRequest greedy(std::vector<int32_t> prompt, uint32_t tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

nlohmann::json golden_of(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

// Ids in which answers agree before they part, over all cases.
void check_golden(const std::string& folder, const std::string& name, bool exact) {
  Result<std::unique_ptr<Service>> service = serve(folder + name + ".gguf", 4, PN_TYPE_F32);
  REQUIRE(service.has_value());
  ModelStatus status = *(*service)->model("m");
  REQUIRE_MESSAGE(status.state == ModelState::ready, status.error);
  std::string base = folder.substr(0, folder.size() - 1);
  std::string golden = base.substr(0, base.rfind('/')) + "/golden/" +
                       base.substr(base.rfind('/') + 1) + "/" + name + ".json";
  for (const nlohmann::json& item : golden_of(golden)) {
    auto want = item["greedy"].get<std::vector<int32_t>>();
    auto prompt = item["ids"].get<std::vector<int32_t>>();
    auto ear = ask(**service, greedy(prompt, static_cast<uint32_t>(want.size())));
    ear->wait();
    REQUIRE_MESSAGE(ear->end.reason == Finish::length, name);
    float gap = item["top"][0][1].get<float>() - item["top"][1][1].get<float>();
    if (exact) {
      CHECK_MESSAGE(ear->ids == want, name);
    } else if (gap > 0.1f) {
      CHECK_MESSAGE(ear->ids.at(0) == want.at(0), name);
    }
  }
}

struct Mix {
  GenerateRequest request;
  std::vector<int32_t> alone;
};

// Requests with every kind of sampling, prompts from one token to several chunks.
std::vector<Mix> mixes(std::mt19937& random, uint32_t vocab, uint32_t context) {
  std::vector<int32_t> common(context / 3);
  for (int32_t& id : common) id = static_cast<int32_t>(random() % vocab);
  std::vector<Mix> all(6);
  for (Mix& mix : all) {
    GenerateRequest& r = mix.request;
    size_t shared = random() % 2 == 0 ? random() % common.size() : 0;
    r.prompt.assign(common.begin(), common.begin() + static_cast<long>(shared));
    size_t more = 1 + random() % (context / 3);
    for (size_t i = 0; i < more; ++i) r.prompt.push_back(static_cast<int32_t>(random() % vocab));
    r.max_tokens = 1 + random() % 24;
    r.ignore_eos = random() % 2 == 0;
    r.sampling.seed = random();
    r.sampling.temperature = random() % 3 == 0 ? 0.0f : 1.0f;
    r.sampling.min_p = 0;
    r.sampling.top_k = random() % 2 == 0 ? 0 : 20;
    if (random() % 3 == 0) r.sampling.repeat_penalty = 1.3f;
    if (random() % 4 == 0) r.sampling.bias = {{static_cast<int32_t>(random() % vocab), 5.0f}};
  }
  return all;
}

void check_mixes(const std::string& file, int rounds, uint32_t seed) {
  Result<std::unique_ptr<Service>> service = serve(file, 4, PN_TYPE_F16);
  REQUIRE(service.has_value());
  ModelStatus status = *(*service)->model("m");
  REQUIRE_MESSAGE(status.state == ModelState::ready, status.error);
  REQUIRE(status.batch_invariant);
  auto vocab = static_cast<uint32_t>((*service)->tokenizer("m")->size());
  std::mt19937 random(seed);
  uint32_t cached = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Mix> all = mixes(random, vocab, std::min(status.context, 600u));
    for (Mix& mix : all) {
      auto ear = ask(**service, mix.request);
      ear->wait();
      mix.alone = ear->ids;
    }
    std::vector<std::shared_ptr<Ear>> ears;
    for (const Mix& mix : all) ears.push_back(ask(**service, mix.request));
    for (size_t i = 0; i < all.size(); ++i) {
      ears[i]->wait();
      CHECK_MESSAGE(ears[i]->ids == all[i].alone,
                    file << ", seed " << seed << ", round " << round << ", request " << i);
      cached += ears[i]->end.cached_tokens;
    }
  }
  printf("%s: %d mixes of 6 equal alone, %u prompt tokens from the cache\n", file.c_str(), rounds,
         cached);
}

int rounds_of(int ordinary) { return getenv("PN_LONG") != nullptr ? ordinary * 10 : ordinary; }

}  // namespace

TEST_CASE("cpu: greedy ids are the golden ones") {
  if (cpu_plugin() == nullptr) return;
  std::string models = shared_folder();
  if (models.empty()) return;
  for (const char* name : {"stories260K-f32", "stories260K-f16", "TinyStories-656K-f32"}) {
    check_golden(models + "real/", name, true);
  }
  check_golden(models + "quant/", "tiny-llama-f16", true);
  for (const char* type :
       {"BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K_M", "Q5_K_M", "Q6_K"}) {
    check_golden(models + "quant/", std::string("tiny-llama-") + type, false);
  }
}

TEST_CASE("cpu: what the plugin or the architecture cannot do fails by name") {
  if (cpu_plugin() == nullptr) return;
  std::string models = shared_folder();
  if (models.empty()) return;
  auto qwen = serve(models + "quant/tiny-qwen2-f16.gguf", 1, PN_TYPE_F16);
  REQUIRE(qwen.has_value());
  CHECK((*qwen)->model("m")->state == ModelState::failed);
  CHECK((*qwen)->model("m")->error.find("qwen2") != std::string::npos);
  qwen->reset();  // a die is opened once
  auto type = serve(models + "quant/tiny-llama-IQ4_NL.gguf", 1, PN_TYPE_F16);
  REQUIRE(type.has_value());
  CHECK((*type)->model("m")->state == ModelState::failed);
  std::string error = (*type)->model("m")->error;
  CHECK_MESSAGE(error.find("IQ4_NL") != std::string::npos, error);
}

TEST_CASE("cpu: random mixes answer as each request alone") {
  if (cpu_plugin() == nullptr) return;
  test::ModelSpec spec;
  spec.name = "mixed";
  spec.type = "Q8_0";
  check_mixes(test::model_file(spec), rounds_of(20), 3);
  std::string models = shared_folder();
  if (models.empty()) return;
  check_mixes(models + "real/stories260K-f16.gguf", rounds_of(20), 4);
  check_mixes(models + "quant/tiny-llama-Q4_K_M.gguf", rounds_of(10), 5);
}

TEST_CASE("cpu: the measurement gives figures that hang together") {
  if (cpu_plugin() == nullptr) return;
  test::ModelSpec spec;
  spec.name = "measured";
  spec.type = "Q8_0";
  BenchConfig config;
  config.file = test::model_file(spec);
  config.plugin = cpu_plugin();
  config.prompt_tokens = 100;
  config.decode_tokens = 20;
  config.batch = 2;
  config.rounds = 2;
  Result<BenchResult> result = run_bench(config);
  REQUIRE_MESSAGE(result.has_value(), result.error().message);
  CHECK(result->prompt.samples.size() == 2);
  CHECK(result->prompt.median > 0);
  CHECK(result->decode.median > 0);
  CHECK(result->decode_weight_bytes < result->weight_bytes);
  CHECK(result->decode_bytes_per_s >
        static_cast<double>(result->decode_weight_bytes) * result->decode.median / 2);
}
