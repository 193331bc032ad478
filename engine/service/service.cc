// SPDX-License-Identifier: Apache-2.0
//
// The models of a process behind one interface. A thread loads them one after the other: two loads
// at once would only take turns on the disk.
#include "engine/service/service.h"

#include <pthread.h>

#include <algorithm>
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

constexpr uint64_t kLastCallNs = 2'000'000'000ull;  // for calls that hang, at the end

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
  std::string restart_reason() const override;
  std::vector<std::string> notes() const override { return notes_; }
  void wait_loaded(uint64_t timeout_ns) override;
  void drain(uint64_t timeout_ns) override;

 private:
  Model* find(const std::string& name) const;
  std::shared_ptr<Die> die_of(const ModelConfig& config, std::optional<Error>& error);
  // A thread that loads; another one takes over where it does not come back.
  struct Loader {
    std::shared_ptr<hal::CallWatch> watch = std::make_shared<hal::CallWatch>();
    size_t next = 0;        // to be loaded; guarded by mutex_, as is what follows
    Model* hand = nullptr;  // the model in hand
    bool stuck = false;     // somebody else has taken over
    bool ended = false;
    std::mutex life;            // held while it may touch the service
    bool service_gone = false;  // guarded by life
    std::thread thread;
  };
  void start_loader(size_t first);
  void load_from(const std::shared_ptr<Loader>& me);
  bool take_in_hand(const std::shared_ptr<Loader>& me, Model* model, size_t next);
  bool still_there(const std::shared_ptr<Loader>& me);
  void take_over(const std::shared_ptr<Loader>& stuck);
  void plugin_hung(const pn_plugin* api);
  std::vector<std::unique_ptr<Model>> leave_stuck_loaders();
  void finish(std::function<void()> end);
  void on_lost(Model* model);
  void await_losses(const std::shared_ptr<Loader>& me);
  void revive(Model& model);
  uint32_t outstanding() const;

  std::unique_ptr<Scheduler> scheduler_;
  std::map<std::pair<const hal::Plugin*, uint32_t>, std::shared_ptr<Die>> dies_;
  const std::vector<std::string> notes_;
  std::vector<std::shared_ptr<hal::Plugin>> plugins_;
  std::vector<std::unique_ptr<Model>> models_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  bool all_loaded_ = false;  // guarded by mutex_, as is what follows
  std::deque<Model*> lost_;  // to be revived
  std::condition_variable wake_;
  std::shared_ptr<Loader> loader_;
  std::vector<std::shared_ptr<Loader>> stuck_;
  std::string restart_;
};

ModelService::ModelService(ServiceConfig config)
    : scheduler_(std::make_unique<Scheduler>(config.call_deadline_ns)), notes_(config.notes) {
  scheduler_->plugin_hung = [this](const pn_plugin* api) { plugin_hung(api); };
  for (ModelConfig& model : config.models) {
    std::optional<Error> error;
    std::shared_ptr<Die> die = die_of(model, error);
    plugins_.push_back(model.plugin);
    models_.push_back(std::make_unique<Model>(std::move(model), std::move(die), *scheduler_,
                                              [this](Model* lost) { on_lost(lost); }));
    if (error) models_.back()->fail(*error);
  }
  start_loader(0);
}

ModelService::~ModelService() {
  draining_.store(true);
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  scheduler_->watchdog().hurry(kLastCallNs);
  for (auto& model : models_) model->cancel_load();
  std::vector<std::unique_ptr<Model>> models = leave_stuck_loaders();
  for (auto& model : models) {  // each takes its copy back from the scheduler
    finish([kept = std::shared_ptr<Model>(std::move(model))]() mutable { kept.reset(); });
  }
  finish([dies = std::move(dies_)]() mutable { dies.clear(); });
}

// On a thread of its own, since what it destroys may hang; then it is left to that thread.
void ModelService::finish(std::function<void()> end) {
  struct Job {
    std::shared_ptr<hal::CallWatch> watch = std::make_shared<hal::CallWatch>();
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    bool hung = false;
  };
  auto job = std::make_shared<Job>();
  auto over = [job](bool hung) {
    std::lock_guard lock(job->mutex);
    job->over = true;
    job->hung = hung;
    job->changed.notify_all();
  };
  scheduler_->watchdog().add(job->watch, [this, over](const pn_plugin* api) {
    plugin_hung(api);
    over(true);
  });
  std::thread thread([job, over, end = std::move(end)]() mutable {
    hal::CallWatch::set_of_thread(job->watch.get());
    end();
    end = nullptr;
    over(false);
  });
  {
    std::unique_lock lock(job->mutex);
    job->changed.wait(lock, [&] { return job->over; });
  }
  scheduler_->watchdog().remove(job->watch);
  job->hung ? thread.detach() : thread.join();
}

// Waits for the thread that loads, and shortly for those that got stuck; what one of them has in
// hand is left to it. Returns the others.
std::vector<std::unique_ptr<Model>> ModelService::leave_stuck_loaders() {
  static auto* left = new std::vector<std::unique_ptr<Model>>;  // never destroyed
  std::unique_lock lock(mutex_);
  const auto most = std::chrono::nanoseconds(2 * kLastCallNs);
  auto stuck_end = [this] {
    return std::all_of(stuck_.begin(), stuck_.end(), [](const auto& l) { return l->ended; });
  };
  while (!loaded_.wait_for(lock, most, [this] { return loader_->ended; })) {
    if (loader_->stuck) continue;  // another one is about to take over
    lock.unlock();                 // it waits for something that is no call: convert, a disk
    take_over(loader_);
    lock.lock();
  }
  loaded_.wait_for(lock, std::chrono::nanoseconds(kLastCallNs), stuck_end);
  std::vector<std::unique_ptr<Model>> models;
  models.swap(models_);
  for (const auto& stuck : stuck_) {
    for (auto& model : models) {
      if (!stuck->ended && model.get() == stuck->hand) left->push_back(std::move(model));
    }
  }
  std::erase(models, nullptr);
  const std::shared_ptr<Loader> last = loader_;
  const std::vector<std::shared_ptr<Loader>> all = stuck_;
  lock.unlock();  // the watchdog may be about to tell
  scheduler_->watchdog().remove(last->watch);
  last->thread.join();
  for (const auto& stuck : all) {
    scheduler_->watchdog().remove(stuck->watch);
    std::lock_guard life(stuck->life);
    stuck->service_gone = true;
  }
  return models;
}

void ModelService::start_loader(size_t first) {
  auto fresh = std::make_shared<Loader>();
  fresh->next = first;
  scheduler_->watchdog().add(fresh->watch, [this, fresh](const pn_plugin* api) {
    plugin_hung(api);
    take_over(fresh);
  });
  std::lock_guard lock(mutex_);
  loader_ = fresh;
  fresh->thread = std::thread([this, fresh] { load_from(fresh); });
}

void ModelService::load_from(const std::shared_ptr<Loader>& me) {
  pthread_setname_np(pthread_self(), "pn-loader");
  hal::CallWatch::set_of_thread(me->watch.get());
  for (size_t i = me->next; i < models_.size(); ++i) {
    Model& model = *models_[i];
    if (!take_in_hand(me, &model, i + 1)) break;
    model.stalled = [this, me] { take_over(me); };
    if (!stop_.load()) model.load();
    if (!still_there(me)) return;
  }
  await_losses(me);
  std::lock_guard life(me->life);
  if (me->service_gone) return;
  std::lock_guard lock(mutex_);
  me->ended = true;
  loaded_.notify_all();
}

// False: another one has taken over.
bool ModelService::take_in_hand(const std::shared_ptr<Loader>& me, Model* model, size_t next) {
  std::lock_guard lock(mutex_);
  if (me->stuck) return false;
  me->hand = model;
  me->next = next;
  return true;
}

// False: the service has ended while this thread was stuck.
bool ModelService::still_there(const std::shared_ptr<Loader>& me) {
  std::lock_guard life(me->life);
  if (me->service_gone) return false;
  std::lock_guard lock(mutex_);
  me->hand = nullptr;
  return true;
}

// On the watchdog's thread, or on the stuck one itself.
void ModelService::take_over(const std::shared_ptr<Loader>& stuck) {
  size_t next = 0;
  {
    std::lock_guard lock(mutex_);
    if (stuck->stuck) return;
    stuck->stuck = true;
    stuck->thread.detach();
    stuck_.push_back(stuck);
    next = stuck->next;
  }
  start_loader(next);
}

// On the watchdog's thread. Models of the plugin that are loading have failed; those that served
// are ended by the scheduler.
void ModelService::plugin_hung(const pn_plugin* api) {
  std::string reason;
  for (const auto& plugin : plugins_) {
    if (&plugin->table() != api) continue;
    plugin->abandon();
    reason = "a call into plugin " + plugin->name() + " did not return; restart pantheon";
  }
  std::lock_guard lock(mutex_);  // models_ is emptied under it at the end
  restart_ = reason;
  for (const auto& model : models_) {
    if (&model->plugin()->table() == api) model->fail({Code::device_lost, reason, ""});
  }
}

std::string ModelService::restart_reason() const {
  std::lock_guard lock(mutex_);
  return restart_;
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
void ModelService::await_losses(const std::shared_ptr<Loader>& me) {
  for (;;) {
    Model* model = nullptr;
    {
      std::unique_lock lock(mutex_);
      if (me->stuck) return;
      all_loaded_ = lost_.empty();
      if (all_loaded_) loaded_.notify_all();
      wake_.wait(lock, [this] { return stop_.load() || !lost_.empty(); });
      if (stop_.load()) return;
      model = lost_.front();
      lost_.pop_front();
      me->hand = model;
    }
    revive(*model);
    if (!still_there(me)) return;
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
