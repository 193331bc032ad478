// SPDX-License-Identifier: Apache-2.0
//
// Serving beside the bare steps: how long a load takes against reading the file, how much memory it
// holds meanwhile, and how fast the service decodes against RawLoop on the same copy, in turns.
//
//   serve_bench PATH/backend.so MODEL.gguf [prompt [tokens [rounds]]]
//
// The exit status says whether decode through the scheduler reached 97 % of the bare loop and the
// anonymous memory stayed within weights + cache + 150 MiB.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/service/bench.h"

namespace {

using namespace pn;
using namespace pn::engine;

uint64_t status_kib(const char* key) {
  FILE* file = fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (fgets(line, sizeof(line), file) != nullptr) {
    if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %llu", &kib);
  }
  fclose(file);
  return kib;
}

// The largest RssAnon + RssShmem seen while it lives.
class MemoryWatch {
 public:
  MemoryWatch() : thread_([this] { run(); }) {}
  ~MemoryWatch() {
    stop_.store(true);
    thread_.join();
  }
  uint64_t peak_bytes() const { return peak_.load() * 1024; }

 private:
  void run() {
    while (!stop_.load()) {
      peak_.store(std::max(peak_.load(), status_kib("RssAnon") + status_kib("RssShmem")));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> peak_{0};
  std::thread thread_;
};

double read_whole(const char* path) {
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  std::vector<char> buffer(4 << 20);
  uint64_t start = now_ns();
  while (read(fd, buffer.data(), buffer.size()) > 0) {
  }
  close(fd);
  return static_cast<double>(now_ns() - start) * 1e-9;
}

class Waiter : public Sink {
 public:
  bool token(const Drawn&) override {
    if (first_ns == 0) first_ns = now_ns();
    last_ns = now_ns();
    return true;
  }
  void ended(const Ended&) override {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  uint64_t first_ns = 0, last_ns = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Args {
  std::string plugin, model;
  uint32_t prompt = 32, tokens = 64, rounds = 9;
};

// Tokens a second; moves value to the last one submitted.
double served(Scheduler& scheduler, Copy copy, const Args& args, uint64_t& value) {
  copy.queue_value = value;
  auto runner = scheduler.add(std::move(copy));
  auto sink = std::make_shared<Waiter>();
  auto job = std::make_unique<Job>();
  job->tokens.reserve(args.prompt + args.tokens + 1);
  job->tokens.assign(args.prompt, 3);
  job->prompt_tokens = args.prompt;
  job->max_tokens = args.tokens + 1;
  job->setup.adapter = PN_NONE;
  job->setup.top_p = job->setup.repeat_penalty = 1;
  job->sink = sink;
  if (!scheduler.submit(runner, std::move(job), 1)) return 0;
  sink->wait();
  scheduler.remove(runner);
  value = runner->last_value();
  return args.tokens * 1e9 / static_cast<double>(sink->last_ns - sink->first_ns);
}

Result<bool> run(const Args& args) {
  hal::LoadRequest request;
  request.plugin = args.plugin;
  PN_TRY(std::shared_ptr<hal::Plugin> plugin, hal::Plugin::load(request));
  auto die = std::make_shared<Die>();
  PN_TRY(die->device, hal::Device::open(plugin, 0));
  die->id = die->device.id();
  double read_s = read_whole(args.model.c_str());
  MemoryWatch watch;
  uint64_t start = now_ns();
  PN_TRY(auto file, gguf::File::open(args.model));
  PN_TRY(std::shared_ptr<const arch::Model> model, arch::Model::load(file));
  InstanceOptions options;
  options.model = args.model;
  options.context = args.prompt + args.tokens + 2;
  PN_TRY(std::unique_ptr<Instance> instance, Instance::plan(model, die, options));
  LoadProgress progress;
  PN_TRY(instance->load(progress));
  double load_s = static_cast<double>(now_ns() - start) * 1e-9;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  printf("load %.2f s (%.2f s of processor, %.2f of it system), reading the file %.2f s\n", load_s,
         seconds(usage.ru_utime) + seconds(usage.ru_stime), seconds(usage.ru_stime), read_s);

  std::vector<double> raw, through, share;
  uint64_t cpu_ns = 0, value = 0;
  for (uint32_t i = 0; i <= args.rounds; ++i) {
    Copy copy = instance->copy();
    copy.queue_value = value;
    RawLoop loop(std::move(copy), instance->vocab());
    PN_TRY(Round round, loop.round(1, args.prompt, args.tokens));
    value = loop.last_value();
    Scheduler scheduler;
    double tokens_per_s = served(scheduler, instance->copy(), args, value);
    cpu_ns += scheduler.cpu_ns();
    if (i == 0) continue;
    raw.push_back(args.tokens * 1e9 / static_cast<double>(round.decode_ns));
    through.push_back(tokens_per_s);
    share.push_back(tokens_per_s / raw.back());
  }
  uint64_t most = instance->need().weights + instance->need().cache() + (150ull << 20);
  printf("decode: bare %.2f tokens/s, through the scheduler %.2f, median of pairs %.1f %%\n",
         median(raw), median(through), 100 * median(share));
  printf("scheduler thread: %.1f us a token\n",
         static_cast<double>(cpu_ns) / 1000 / ((args.rounds + 1) * args.tokens));
  printf("anonymous memory: %.0f MiB at most, %.0f allowed\n",
         static_cast<double>(watch.peak_bytes()) / (1 << 20),
         static_cast<double>(most) / (1 << 20));
  return median(share) >= 0.97 && watch.peak_bytes() <= most;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: serve_bench PATH/backend.so MODEL.gguf [prompt [tokens [rounds]]]\n");
    return 2;
  }
  Args args;
  args.plugin = argv[1];
  args.model = argv[2];
  if (argc > 3) args.prompt = static_cast<uint32_t>(atoi(argv[3]));
  if (argc > 4) args.tokens = static_cast<uint32_t>(atoi(argv[4]));
  if (argc > 5) args.rounds = static_cast<uint32_t>(atoi(argv[5]));
  Result<bool> good = run(args);
  if (!good) {
    fprintf(stderr, "serve_bench: %s\n", good.error().message.c_str());
    return 1;
  }
  return *good ? 0 : 1;
}
