// SPDX-License-Identifier: Apache-2.0
//
// The models of a process behind one interface. A thread loads them one after the other: two loads
// at once would only take turns on the disk.
#include "engine/service/service.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "engine/service/model.h"

namespace pn::engine {
namespace {

class ModelService : public Service {
 public:
  explicit ModelService(ServiceConfig config);
  ~ModelService() override;

  std::vector<ModelStatus> models() const override;
  std::optional<ModelStatus> model(const std::string& name) const override;
  const tok::Tokenizer* tokenizer(const std::string& model) const override;
  const chat::Template* chat_template(const std::string& model) const override;
  Result<uint64_t> start(const std::string& model, GenerateRequest request,
                         std::shared_ptr<Listener> listener) override;
  void cancel(uint64_t id) override { scheduler_->cancel(id); }
  void wait_loaded(uint64_t timeout_ns) override;
  void drain(uint64_t timeout_ns) override;

 private:
  Model* find(const std::string& name) const;
  std::shared_ptr<Die> die_of(const ModelConfig& config, std::optional<Error>& error);
  void load_all();
  void on_lost(Model* model);
  void await_losses();
  void revive(Model& model);
  uint32_t outstanding() const;

  std::unique_ptr<Scheduler> scheduler_ = std::make_unique<Scheduler>();
  std::map<std::pair<const hal::Plugin*, uint32_t>, std::shared_ptr<Die>> dies_;
  std::vector<std::unique_ptr<Model>> models_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable loaded_;
  bool all_loaded_ = false;  // guarded by mutex_, as is the next
  std::deque<Model*> lost_;  // to be revived
  std::condition_variable wake_;
  std::thread loader_;
};

ModelService::ModelService(ServiceConfig config) {
  for (ModelConfig& model : config.models) {
    std::optional<Error> error;
    std::shared_ptr<Die> die = die_of(model, error);
    models_.push_back(std::make_unique<Model>(std::move(model), std::move(die), *scheduler_,
                                              [this](Model* lost) { on_lost(lost); }));
    if (error) models_.back()->fail(*error);
  }
  loader_ = std::thread([this] { load_all(); });
}

ModelService::~ModelService() {
  draining_.store(true);
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (auto& model : models_) model->cancel_load();
  loader_.join();
  models_.clear();  // each takes its copy back from the scheduler
}

std::shared_ptr<Die> ModelService::die_of(const ModelConfig& config, std::optional<Error>& error) {
  std::shared_ptr<Die>& die = dies_[{config.plugin.get(), config.device}];
  const hal::Isolation* isolation = config.plugin->isolation();
  const uint32_t generation = isolation != nullptr ? isolation->generation() : 0;
  if (die && die->generation == generation) return die;
  die.reset();
  Result<hal::Device> device = hal::Device::open(config.plugin, config.device);
  if (!device) {
    error = device.error();
    return nullptr;
  }
  die = std::make_shared<Die>();
  die->device = std::move(*device);
  die->id = die->device.id();
  die->budget = config.budget;
  die->generation = generation;
  return die;
}

void ModelService::load_all() {
  pthread_setname_np(pthread_self(), "pn-loader");
  for (auto& model : models_) {
    if (!stop_.load()) model->load();
  }
  await_losses();
}

// On the scheduler's thread.
void ModelService::on_lost(Model* model) {
  {
    std::lock_guard lock(mutex_);
    lost_.push_back(model);
    all_loaded_ = false;
  }
  wake_.notify_all();
}

// The loading thread's second life: models whose process died.
void ModelService::await_losses() {
  for (;;) {
    Model* model = nullptr;
    {
      std::unique_lock lock(mutex_);
      all_loaded_ = lost_.empty();
      if (all_loaded_) loaded_.notify_all();
      wake_.wait(lock, [this] { return stop_.load() || !lost_.empty(); });
      if (stop_.load()) return;
      model = lost_.front();
      lost_.pop_front();
    }
    revive(*model);
  }
}

// The first model of a plugin starts its process again, the others find it started.
void ModelService::revive(Model& model) {
  const ModelConfig& config = model.config();
  hal::Isolation* isolation = config.plugin->isolation();
  while (!stop_.load()) {
    model.let_go();
    Result<void> restarted = isolation->restart(model.generation());
    if (!restarted) return model.fail(restarted.error());
    std::optional<Error> error;
    std::shared_ptr<Die> die = die_of(config, error);
    Result<void> revived = error ? tl::make_unexpected(*error) : model.revive(std::move(die));
    if (revived) return;
    if (isolation->alive()) return model.fail(revived.error());  // else restart() counts and stops
  }
}

Model* ModelService::find(const std::string& name) const {
  if (name.empty()) return models_.front().get();
  for (const auto& model : models_) {
    if (model->answers_to(name)) return model.get();
  }
  return nullptr;
}

std::vector<ModelStatus> ModelService::models() const {
  std::vector<ModelStatus> all;
  for (const auto& model : models_) all.push_back(model->status());
  return all;
}

std::optional<ModelStatus> ModelService::model(const std::string& name) const {
  Model* model = find(name);
  if (model == nullptr) return std::nullopt;
  return model->status();
}

const tok::Tokenizer* ModelService::tokenizer(const std::string& name) const {
  Model* model = find(name);
  return model == nullptr ? nullptr : model->tokenizer();
}

const chat::Template* ModelService::chat_template(const std::string& name) const {
  Model* model = find(name);
  return model == nullptr ? nullptr : model->chat_template();
}

Result<uint64_t> ModelService::start(const std::string& name, GenerateRequest request,
                                     std::shared_ptr<Listener> listener) {
  if (draining_.load()) {
    return fail(Code::busy, "the server is shutting down: ask another one", "shutting_down");
  }
  Model* model = find(name);
  if (model == nullptr) {
    std::string known;
    for (const auto& each : models_) known += (known.empty() ? "" : ", ") + each->name();
    return fail(Code::not_found, "there is no model \"" + name + "\" here; there is " + known,
                "model");
  }
  return model->start(std::move(request), std::move(listener));
}

void ModelService::wait_loaded(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  auto most = std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, INT64_MAX / 4));
  loaded_.wait_for(lock, most, [this] { return all_loaded_; });
}

uint32_t ModelService::outstanding() const {
  uint32_t sum = 0;
  for (const auto& model : models_) sum += model->outstanding();
  return sum;
}

void ModelService::drain(uint64_t timeout_ns) {
  draining_.store(true);
  uint64_t now = now_ns();
  uint64_t end = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
  while (outstanding() != 0 && now_ns() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  scheduler_->cancel_all();
  // The scheduler ends them within a step; a die that hangs is not waited for.
  for (uint64_t last = now_ns() + 1'000'000'000ull; outstanding() != 0 && now_ns() < last;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Names are what users type; a model that was given none is called like its file.
std::string name_of(const ModelConfig& model) {
  if (!model.name.empty()) return model.name;
  return std::filesystem::path(model.file).stem().string();
}

}  // namespace

Result<std::unique_ptr<Service>> make_service(ServiceConfig config) {
  if (config.models.empty()) {
    return fail(Code::invalid, "no model to serve: name one with --model or in the profile",
                "models");
  }
  std::set<std::string> names;
  for (ModelConfig& model : config.models) {
    model.name = name_of(model);
    if (!model.plugin) {
      return fail(Code::invalid, model.name + " has no plugin to run on", model.name);
    }
    std::vector<std::string> all = model.aliases;
    all.push_back(model.name);
    for (const std::string& name : all) {
      if (names.insert(name).second) continue;
      return fail(Code::invalid, "two models are called \"" + name + "\": rename one", name);
    }
  }
  return std::unique_ptr<Service>(new ModelService(std::move(config)));
}

}  // namespace pn::engine
