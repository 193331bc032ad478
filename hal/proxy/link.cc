// SPDX-License-Identifier: Apache-2.0
//
// See link.h.
#include "hal/proxy/link.h"

#include <algorithm>
#include <iterator>
#include <thread>

namespace pn::proxy {

namespace {

constexpr const char* kNames[] = {"entry",
                                  "devices",
                                  "device_open",
                                  "device_close",
                                  "heaps",
                                  "buffer_create",
                                  "buffer_destroy",
                                  "program_query",
                                  "program_create",
                                  "program_status",
                                  "program_destroy",
                                  "queue_create",
                                  "queue_destroy",
                                  "layout.rank",
                                  "layout.sizes",
                                  "layout.convert",
                                  "layout.decode",
                                  "layout.targets",
                                  "hostmem.import",
                                  "sampler.describe",
                                  "graph.describe",
                                  "topology.edges",
                                  "peer.connect",
                                  "telemetry.health",
                                  "telemetry.readings",
                                  "telemetry.occupants",
                                  "reset.describe",
                                  "reset.reset",
                                  "reset.self_check",
                                  "load.file",
                                  "load.close",
                                  "load.place",
                                  "shutdown"};
static_assert(std::size(kNames) == static_cast<size_t>(Call::count));

uint32_t bulk_count() { return std::clamp(std::thread::hardware_concurrency(), 1u, 16u); }

Answer failed(pn_status status, const std::string& text) {
  Answer answer;
  answer.status = status;
  answer.error = no_error();
  set_error(&answer.error, status, text);
  return answer;
}

}  // namespace

const char* name_of(Call call) { return kNames[static_cast<size_t>(call)]; }

Answer Link::open(const Launch& launch, uint32_t generation, const Options& options, Log log,
                  std::shared_ptr<Link>* out) {
  std::shared_ptr<Link> link(new Link);
  link->generation_ = generation;
  link->deadline_ms_ = launch.deadline_ms;
  auto control = socket_pair();
  if (!control) return failed(PN_FAILED, control.error().message);
  link->control_ = Channel(std::move(control->first));
  std::vector<Fd> ends;
  std::vector<int> fds;
  for (uint32_t i = 0; i < bulk_count(); ++i) {
    auto pair = socket_pair();
    if (!pair) return failed(PN_FAILED, pair.error().message);
    link->bulk_.emplace_back(std::move(pair->first));
    link->bulk_free_.push_back(i);
    fds.push_back(pair->second.get());
    ends.push_back(std::move(pair->second));
  }
  ProcessSpec spec;
  spec.program = launch.program;
  spec.plugin = launch.plugin;
  spec.silence_ms = launch.deadline_ms != 0 ? launch.deadline_ms : kSilenceMs;
  spec.log = std::move(log);
  auto process = Process::start(std::move(spec), std::move(control->second));
  if (!process) return failed(PN_FAILED, process.error().message);
  link->process_ = std::move(*process);
  Answer answer = link->greet(launch, options, fds);
  if (answer.status == PN_OK) *out = std::move(link);
  return answer;
}

Answer Link::greet(const Launch& launch, const Options& options, std::span<const int> fds) {
  Writer args;
  args.pod(kProtocol);
  args.pod<uint32_t>(PN_ABI_MINOR);
  args.pod(generation_);
  args.pod<uint32_t>(launch.mirror_results ? 1 : 0);
  args.pod<uint32_t>(launch.deadline_ms != 0 ? launch.deadline_ms : kSilenceMs);
  args.text(launch.plugin);
  args.text(launch.cache_dir);
  args.pod<uint64_t>(options.size());
  for (const auto& [key, value] : options) {
    args.text(key);
    args.text(value);
  }
  Answer answer = call(Call::hello, args, kLoadMs, fds);
  if (answer.status != PN_OK) return answer;
  interfaces_ = answer.in.pod<uint64_t>();
  import_alignment_ = answer.in.pod<uint32_t>();
  if (answer.message.fds.size() != 1) return failed(PN_FAILED, "the backend host sent no board");
  auto board = SharedMemory::map(std::move(answer.message.fds[0]), sizeof(Board));
  if (!board) return failed(PN_FAILED, board.error().message);
  board_ = std::move(*board);
  process_->watch_beat(&reinterpret_cast<const Board*>(board_.at())->beat);
  return answer;
}

Answer Link::lost_answer() {
  lost_.store(true, std::memory_order_release);
  Answer answer;
  answer.error = loss();
  answer.status = answer.error.code;
  return answer;
}

Answer Link::exchange(Channel& channel, Call what, const Writer& args, uint32_t ms,
                      std::span<const int> fds) {
  if (lost()) return lost_answer();
  const uint32_t most = deadline_ms_ != 0 ? std::min(ms, deadline_ms_) : ms;
  const uint64_t deadline = monotonic_ns() + most * 1'000'000ull;
  Answer answer;
  Outcome outcome = channel.send(static_cast<uint32_t>(what), args.view(), fds, deadline);
  if (outcome == Outcome::ok) outcome = channel.receive(&answer.message, deadline);
  if (outcome == Outcome::late) {
    process_->kill("has not returned from " + std::string(name_of(what)) + " for " +
                   std::to_string(most) + " ms and was killed");
  }
  if (outcome != Outcome::ok) return lost_answer();
  answer.in = Reader(answer.message.body);
  answer.status = answer.in.pod<pn_status>();
  answer.error = answer.in.pod<pn_error>();
  return answer;
}

Answer Link::call(Call what, const Writer& args, uint32_t ms, std::span<const int> fds) {
  std::lock_guard lock(control_mutex_);
  return exchange(control_, what, args, ms, fds);
}

Answer Link::try_call(Call what, const Writer& args, uint32_t ms) {
  std::unique_lock lock(control_mutex_, std::try_to_lock);
  if (lock.owns_lock()) return exchange(control_, what, args, ms, {});
  if (lost()) return lost_answer();
  Answer answer;
  answer.error = no_error();
  answer.busy = true;
  return answer;
}

Answer Link::bulk_call(Call what, const Writer& args, uint32_t ms) {
  std::unique_lock lock(bulk_mutex_);
  bulk_freed_.wait(lock, [this] { return !bulk_free_.empty(); });
  const size_t mine = bulk_free_.back();
  bulk_free_.pop_back();
  lock.unlock();
  Answer answer = exchange(bulk_[mine], what, args, ms, {});
  lock.lock();
  bulk_free_.push_back(mine);
  bulk_freed_.notify_one();
  return answer;
}

bool Link::read_board(uint32_t slot, pn_status* status, pn_memory_status* memory, pn_error* error) {
  if (slot >= kBoardDevices) return false;
  const BoardSlot& s = reinterpret_cast<const Board*>(board_.at())->slots[slot];
  for (int tries = 0; tries < 1000; ++tries) {
    const uint32_t before = s.sequence.load(std::memory_order_acquire);
    *status = s.status;
    *memory = s.memory;
    *error = s.error;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && s.sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

}  // namespace pn::proxy
