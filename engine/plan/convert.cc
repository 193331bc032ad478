// SPDX-License-Identifier: Apache-2.0
//
// Work is cut into pieces of about 4 MiB in file order. Threads take the next piece; before it is
// converted its window of the file is brought in by one call, and the window that the next piece
// but few will need is announced, so that a cold disk reads ahead while a core converts.
#include "engine/plan/convert.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "engine/plan/layouts.h"
#include "engine/plan/pool.h"
#include "engine/plan/remote_load.h"
#include "engine/plan/staging.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace pn::engine {
namespace {

constexpr uint64_t kPieceBytes = 4ull << 20;

struct Piece {
  uint32_t transfer;
  uint64_t first, count;  // tiles
};

// The part of the source that a range of tiles is made from, widened to pages. Only a hint where a
// layout mixes rows; reading is right in any case.
std::pair<const std::byte*, uint64_t> window(const Transfer& t, uint64_t first, uint64_t count) {
  static const auto kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (t.source->tensor == nullptr || t.choice.tile_count == 0) return {nullptr, 0};
  uint64_t bytes = t.source->tensor->bytes;
  uint64_t tiles = t.choice.tile_count;
  auto at = [&](uint64_t tile) { return bytes / tiles * tile + bytes % tiles * tile / tiles; };
  auto base = reinterpret_cast<uintptr_t>(t.source->tensor->data);
  uintptr_t begin = (base + at(first)) / kPage * kPage;
  return {reinterpret_cast<const std::byte*>(begin), base + at(first + count) - begin};
}

class Conversion {
 public:
  Conversion(const ConvertJob& job, LoadProgress& progress) : job_(job), progress_(progress) {}
  Result<void> run();

 private:
  void cut();
  void work();
  Result<void> place(const Piece& piece);
  void announce();  // what will be read soon
  Result<void> read_in(const Piece& piece);
  Result<void> fill(const Transfer& t, const Piece& piece, std::byte* out);
  void stop(const Error& error);
  void watch();
  Error stall_error(uint64_t ns);

  const ConvertJob& job_;
  LoadProgress& progress_;
  std::vector<Piece> pieces_;
  uint64_t piece_max_ = 0;                   // bytes
  std::vector<std::atomic<uint32_t>> left_;  // pieces of each transfer
  std::atomic<size_t> next_{0};
  std::atomic<size_t> latest_{0};  // piece that was taken last
  std::atomic<uint32_t> alive_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<Error> error_;  // guarded by mutex_, the first one
  std::unique_ptr<Staging> staging_;
  std::optional<RemoteLoad> remote_;
};

void Conversion::cut() {
  left_ = std::vector<std::atomic<uint32_t>>(job_.transfers.size());
  uint64_t align = 1;  // staged pieces begin where a copy may begin
  for (const pn_heap_info& heap : job_.die->device.heaps()) {
    align = std::max<uint64_t>(align, heap.copy_alignment);
  }
  uint64_t total = 0;
  for (uint32_t i = 0; i < job_.transfers.size(); ++i) {
    const pn_layout_choice& c = job_.transfers[i].choice;
    uint64_t step = std::max<uint64_t>(1, kPieceBytes / std::max<uint64_t>(1, c.tile_bytes));
    if (job_.transfers[i].host == nullptr) {
      step = round_up(step, align / std::gcd(align, std::max<uint64_t>(1, c.tile_bytes)));
    }
    for (uint64_t first = 0; first < c.tile_count; first += step) {
      pieces_.push_back({i, first, std::min(step, c.tile_count - first)});
      piece_max_ = std::max(piece_max_, pieces_.back().count * c.tile_bytes);
      left_[i].fetch_add(1, std::memory_order_relaxed);
    }
    total += c.tile_count * c.tile_bytes;
  }
  progress_.total.store(total);
  progress_.done.store(0);
}

Result<void> Conversion::run() {
  cut();
  bool staged = std::any_of(job_.transfers.begin(), job_.transfers.end(),
                            [](const Transfer& t) { return t.host == nullptr; });
  if (job_.load != nullptr) {
    PN_TRY(RemoteLoad remote, RemoteLoad::open(*job_.load, job_.die->device, *job_.file));
    remote_.emplace(std::move(remote));
  } else if (staged) {
    PN_TRY(staging_, Staging::create(*job_.die, piece_max_));
  }
  std::vector<std::thread> threads;
  uint32_t count = std::max(1u, job_.threads);
  alive_.store(count);
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
  watch();
  for (std::thread& thread : threads) thread.join();
  std::lock_guard lock(mutex_);
  if (error_) return tl::make_unexpected(*error_);
  return {};
}

void Conversion::work() {
  pthread_setname_np(pthread_self(), "pn-load");
  while (!stop_.load(std::memory_order_relaxed)) {
    size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= pieces_.size()) break;
    latest_.store(i, std::memory_order_relaxed);
    Result<void> placed = place(pieces_[i]);
    if (!placed) {
      stop(placed.error());
      break;
    }
    const Transfer& t = job_.transfers[pieces_[i].transfer];
    bool last = left_[pieces_[i].transfer].fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (last && t.source->tensor != nullptr) job_.file->drop_pages(*t.source->tensor);
  }
  if (alive_.fetch_sub(1) == 1) {
    std::lock_guard lock(mutex_);
    ended_.notify_all();
  }
}

Result<void> Conversion::place(const Piece& piece) {
  const Transfer& t = job_.transfers[piece.transfer];
  uint64_t offset = piece.first * t.choice.tile_bytes;
  uint64_t bytes = piece.count * t.choice.tile_bytes;
  announce();
  if (remote_) {
    PN_TRY(remote_->place(t, piece.first, piece.count, job_.layout));
    progress_.done.fetch_add(bytes, std::memory_order_relaxed);
    return {};
  }
  PN_TRY(read_in(piece));
  if (t.host != nullptr) {
    PN_TRY(fill(t, piece, t.host + offset));
    progress_.done.fetch_add(bytes, std::memory_order_relaxed);
    return {};
  }
  Staging::Piece staged{};
  if (!staging_->acquire(staged)) return fail(Code::cancelled, "the load was stopped");
  PN_TRY(fill(t, piece, staged.host));
  staging_->upload(staged, bytes, {t.target.buffer, t.target.offset + offset, bytes});
  return {};
}

void Conversion::announce() {
  size_t ahead = latest_.load(std::memory_order_relaxed) + 2 * std::max(1u, job_.threads);
  if (ahead >= pieces_.size()) return;
  const Piece& next = pieces_[ahead];
  auto [at, bytes] = window(job_.transfers[next.transfer], next.first, next.count);
  if (at != nullptr) madvise(const_cast<std::byte*>(at), bytes, MADV_WILLNEED);
}

// A window that cannot be read is an error here and not a SIGBUS in a kernel.
Result<void> Conversion::read_in(const Piece& piece) {
  const Transfer& t = job_.transfers[piece.transfer];
  auto [at, bytes] = window(t, piece.first, piece.count);
  if (at == nullptr) return {};
  if (madvise(const_cast<std::byte*>(at), bytes, MADV_POPULATE_READ) == 0 || errno == EINVAL) {
    return {};  // EINVAL: a kernel before 5.14
  }
  return fail(Code::failed,
              "tensor " + t.source->name + " cannot be read any more (" + std::strerror(errno) +
                  "): was the file changed while it was loaded?",
              t.source->name);
}

Result<void> Conversion::fill(const Transfer& t, const Piece& piece, std::byte* out) {
  const std::byte* source = source_bytes(*t.source);
  if (job_.layout == nullptr) {
    std::memcpy(out, source, t.choice.tile_bytes);
    return {};
  }
  Result<void> done =
      job_.layout->convert(*t.weight, t.choice, source, out, piece.first, piece.count);
  if (done) return {};
  Error error = std::move(done).error();
  error.message = "tensor " + t.source->name + ": " + error.message;
  return tl::make_unexpected(std::move(error));
}

void Conversion::stop(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  stop_.store(true);
  if (staging_) staging_->close();
}

Error Conversion::stall_error(uint64_t ns) {
  const Piece& piece = pieces_[std::min(latest_.load(), pieces_.size() - 1)];
  const Transfer& t = job_.transfers[piece.transfer];
  auto [at, bytes] = window(t, piece.first, piece.count);
  uint64_t offset = t.source->tensor == nullptr
                        ? 0
                        : t.source->tensor->offset + static_cast<uint64_t>(std::max<ptrdiff_t>(
                                                         0, at - t.source->tensor->data));
  return {Code::failed,
          "no byte was loaded for " + std::to_string(ns / 1'000'000) + " ms, at tensor " +
              t.source->name + ", byte " + std::to_string(offset) + " of the file, after " +
              std::to_string(progress_.done.load()) + " of " +
              std::to_string(progress_.total.load()) + " bytes: is the disk or the network there?",
          t.source->name};
}

// The loading thread: empties staging, and looks whether bytes move.
void Conversion::watch() {
  using Clock = std::chrono::steady_clock;
  uint64_t seen = 0;
  auto moved = Clock::now();
  bool told = false;
  bool busy = false;
  for (bool running = true; running || busy;) {
    running = alive_.load() != 0;  // before pump(): what a thread left behind is still sent
    if (staging_) {
      uint64_t done = 0;
      Result<bool> pumped = staging_->pump(done);
      progress_.done.fetch_add(done, std::memory_order_relaxed);
      if (!pumped) stop(pumped.error());
      busy = pumped.value_or(false);
    }
    if (progress_.cancel.load()) stop({Code::cancelled, "the load was cancelled", ""});
    uint64_t now = progress_.done.load();
    if (now != seen) moved = Clock::now();
    seen = now;
    auto still = std::chrono::nanoseconds(Clock::now() - moved).count();
    if (!told && static_cast<uint64_t>(still) > progress_.stall_ns) {
      told = true;
      Error error = stall_error(static_cast<uint64_t>(still));
      stop(error);
      if (progress_.stalled) progress_.stalled(error);
    }
    std::unique_lock lock(mutex_);
    auto nap = staging_ ? std::chrono::microseconds(500) : std::chrono::microseconds(50'000);
    ended_.wait_for(lock, nap, [this, &busy] { return alive_.load() == 0 && !busy; });
  }
}

}  // namespace

Result<void> convert_weights(const ConvertJob& job, LoadProgress& progress) {
  return Conversion(job, progress).run();
}

}  // namespace pn::engine
