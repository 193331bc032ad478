// SPDX-License-Identifier: Apache-2.0
//
// Group memory: what is taken is told, what is refused changes nothing, what is closed comes back.
#include <dirent.h>
#include <pantheon/note.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "hal/check/contract.h"

namespace pn::check {

namespace {

Result<uint64_t> used(Side& side) {
  PN_TRY(const pn_memory_status status, side.device().memory_status());
  return status.used_by_us;
}

Result<void> accounting(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  const pn_heap_info& heap = side->device().heaps()[side->heap()];
  PN_TRY(const uint64_t before, used(*side));
  constexpr uint64_t kBytes = 3 << 20;
  {
    std::vector<hal::Buffer> buffers;
    for (uint64_t i = 1; i <= 4; ++i) {
      PN_TRY(hal::Buffer buffer, side->place(kBytes));
      buffers.push_back(std::move(buffer));
      PN_TRY(const uint64_t now, used(*side));
      const uint64_t most = i * (kBytes + heap.granule + heap.alignment);
      bench.expect(
          heap.kind != PN_HEAP_DEVICE || (now >= before + i * kBytes && now <= before + most),
          "after {} buffers of {} bytes used_by_us rose by {}", i, kBytes,
          static_cast<int64_t>(now - before));
    }
  }
  PN_TRY(const pn_memory_status after, side->device().memory_status());
  bench.expect(after.used_by_us == before,
               "after destroying them used_by_us is {} away from where it was",
               static_cast<int64_t>(after.used_by_us - before));
  bench.expect(after.free_now <= after.total && after.quality <= 2, "free {} of {}, quality {}",
               after.free_now, after.total, after.quality);
  bench.expect(after.sampled_at_ns != 0, "sampled_at_ns is 0");
  return {};
}

Result<void> footprint(Bench& bench) {
  PN_TRY(auto rig, model_rig(bench));
  if (rig == nullptr) return {};
  Side& side = rig->side();
  const pn_plan plan = rig->plan().view();
  const pn_report& report = rig->report().head;
  PN_TRY(const uint64_t before, used(side));
  {
    PN_TRY(hal::Program second, side.device().create_program(plan, rig->bindings()));
    PN_TRY(const pn_program_status status, second.wait_ready(kPatience));
    PN_TRY(const uint64_t with, used(side));
    const uint64_t granule = side.device().heaps()[side.heap()].granule;
    bench.expect(with - before <= report.program_bytes + granule,
                 "a program takes {} bytes, its report says {}", with - before,
                 report.program_bytes);
    bench.expect(status.program_bytes <= report.program_bytes,
                 "program_status says {} bytes, the report {}", status.program_bytes,
                 report.program_bytes);
    bench.expect(status.program_host_bytes <= report.program_host_bytes,
                 "program_status says {} bytes of the host, the report {}",
                 status.program_host_bytes, report.program_host_bytes);
  }
  PN_TRY(const uint64_t after, used(side));
  bench.expect(after == before, "a destroyed program keeps {} bytes",
               static_cast<int64_t>(after - before));
  // The largest step of each shape, with guards behind every bound slice.
  for (uint32_t shape = 0; shape < rig->plan().shapes.size(); ++shape) {
    const pn_shape& s = rig->plan().shapes[shape];
    Steps steps;
    const uint32_t each = s.tokens / s.entries;
    for (uint32_t lane = 0; lane < s.entries; ++lane) {
      for (uint32_t i = 0; i < 8; ++i) steps.page(lane, i, lane * 8 + i);
      steps.entry(lane, 8 * each, lane + 1 == s.entries ? s.tokens - each * lane : each);
      if (lane < s.rows) steps.row(lane, 0, PN_ROW_SAMPLE | PN_ROW_LOGITS);
    }
    PN_TRY(rig->run(steps, shape));
    PN_TRY(const std::string touched, rig->touched_guard());
    bench.expect(touched.empty(), "a full step of shape {} writes past the end of {}", shape,
                 touched);
  }
  bench.note(fmt::format("scratch {}, program {} and {} of the host", report.scratch_bytes,
                         report.program_bytes, report.program_host_bytes));
  return {};
}

Result<void> out_of_memory(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const pn_memory_status before, side->device().memory_status());
  const pn_heap_info& heap = side->device().heaps()[side->heap()];
  for (const uint64_t bytes : {heap.total + heap.granule, heap.bytes_max + heap.granule,
                               uint64_t{1} << 60, UINT64_MAX, UINT64_MAX - 4095}) {
    pn_error err = new_error();
    pn_buffer buffer{0x1234};
    void* host = &err;
    const pn_status status =
        side->table().buffer_create(side->handle(), side->heap(), bytes, &buffer, &host, &err);
    bench.expect(status == PN_OUT_OF_MEMORY || status == PN_INVALID,
                 "a buffer of {} bytes with {} free: status {}, wanted PN_OUT_OF_MEMORY", bytes,
                 before.free_now, status);
    if (status == PN_OK) side->table().buffer_destroy(buffer);
    bench.expect(status == PN_OK || ::strnlen(err.message, sizeof err.message) != 0,
                 "the refusal of {} bytes has no text", bytes);
  }
  pn_error err = new_error();
  pn_buffer buffer{};
  void* host = nullptr;
  const pn_status none =
      side->table().buffer_create(side->handle(), side->heap(), 0, &buffer, &host, &err);
  bench.expect(none == PN_INVALID, "a buffer of 0 bytes: status {}, wanted PN_INVALID", none);
  PN_TRY(const uint64_t after, used(*side));
  bench.expect(after == before.used_by_us, "refused buffers took {} bytes",
               static_cast<int64_t>(after - before.used_by_us));
  PN_TRY(hal::Buffer fine, side->place(1 << 20));
  return side->fill(fine, 1);
}

Result<void> buffers(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  std::vector<hal::Buffer> list;
  uint64_t state = bench.seed(1);
  for (uint32_t heap = 0; heap < side->device().heaps().size(); ++heap) {
    const pn_heap_info& info = side->device().heaps()[heap];
    for (int i = 0; i < 6; ++i) {
      const uint64_t bytes = 1 + random_bits(state) % 70000;
      PN_TRY(hal::Buffer buffer, side->device().create_buffer(heap, bytes));
      const bool visible = (info.flags & PN_HEAP_HOST_VISIBLE) != 0;
      bench.expect((buffer.host() != nullptr) == visible,
                   "heap {}: a host address is {}, HOST_VISIBLE is {}", heap,
                   buffer.host() != nullptr, visible);
      bench.expect(reinterpret_cast<uintptr_t>(buffer.host()) % info.alignment == 0,
                   "heap {}: an address that is no multiple of {}", heap, info.alignment);
      list.push_back(std::move(buffer));
    }
  }
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].host() != nullptr)
      std::memset(list[i].host(), static_cast<int>(i + 1), list[i].bytes());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto* at = static_cast<const uint8_t*>(list[i].host());
    for (uint64_t b = 0; at != nullptr && b < list[i].bytes(); ++b)
      if (!bench.expect(at[b] == i + 1, "buffer {} shares memory with another", i)) break;
  }
  // Copies between all heaps, whole and in part, aligned as the heaps ask.
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    if (list[i].host() == nullptr || list[i + 1].host() == nullptr) continue;
    uint64_t bytes = std::min(list[i].bytes(), list[i + 1].bytes());
    const uint32_t align = std::max(side->device().heaps()[list[i].heap()].copy_alignment,
                                    side->device().heaps()[list[i + 1].heap()].copy_alignment);
    bytes = bytes / align * align;
    if (bytes == 0) continue;
    PN_TRY(side->copy(list[i].slice(0, bytes), list[i + 1].slice(0, bytes)));
    bench.expect(std::memcmp(list[i].host(), list[i + 1].host(), bytes) == 0,
                 "a copy of {} bytes from heap {} to {} is not the same", bytes, list[i].heap(),
                 list[i + 1].heap());
  }
  return {};
}

// ---- open, use, close ---------------------------------------------------------------------------

struct Usage {
  uint64_t resident = 0, threads = 0, files = 0, device = 0;
};

Usage usage() {
  Usage now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> now.resident;
    if (word == "Threads:") status >> now.threads;
  }
  now.resident *= 1024;
  if (DIR* folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder) != nullptr) ++now.files;
    ::closedir(folder);
  }
  return now;
}

// A joined thread may be listed for a moment: up to 2 s are given until the count is back.
Usage settled(const Usage& first) {
  Usage now = usage();
  for (int i = 0; i < 200 && now.threads > first.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = usage();
  }
  return now;
}

constexpr uint64_t kTouched = 1 << 20;  // of each round: what a lost buffer would weigh

Result<uint64_t> one_round(Bench& bench, const std::shared_ptr<hal::Plugin>& plugin) {
  PN_TRY(auto side, Side::open(plugin));
  PN_TRY(const uint64_t before, used(*side));
  {
    PN_TRY(const Plan plan, simple_plan(*side));
    PN_TRY(auto rig, Rig::make(*side, plan));
    PN_TRY(hal::Buffer buffer, side->place(kTouched));
    PN_TRY(side->fill(buffer, 1));
    Steps steps = simple_steps();
    PN_TRY(rig->run(steps));
    (void)bench;
  }
  PN_TRY(const uint64_t after, used(*side));
  return after - std::min(after, before);
}

Result<void> leak(Bench& bench) {
  PN_TRY(auto plugin, bench.plugin());
  const int rounds = bench.quick() ? 16 : 100, warm = rounds / 4;
  Usage first;
  for (int i = 0; i < rounds; ++i) {
    if (i == warm) first = usage();
    const auto kept = one_round(bench, plugin);
    if (!kept && kept.error().code == Code::unsupported)
      return bench.unsupported(kept.error().message), Result<void>{};
    if (!kept) return tl::unexpected<Error>(kept.error());
    if (!bench.expect(*kept == 0, "round {}: {} bytes stay taken when all is destroyed", i, *kept))
      return {};
  }
  const Usage last = settled(first);
  const auto count = static_cast<uint64_t>(rounds - warm);
  const uint64_t grown = last.resident - std::min(last.resident, first.resident);
  // A sanitizer keeps freed memory back on purpose.
  const bool exact = std::string_view(PN_BUILD_SANITIZER) == "none";
  bench.expect(!exact || grown / count < kTouched / 4, "memory grows by {} bytes a round",
               grown / count);
  bench.expect(last.threads <= first.threads, "threads grow from {} to {}", first.threads,
               last.threads);
  bench.expect(last.files <= first.files, "open files grow from {} to {}", first.files, last.files);
  bench.note(fmt::format("{} rounds, {} bytes a round", rounds, grown / count));
  return {};
}

constexpr Case kCases[] = {
    {"memory/accounting", "memory_status", "buffers show, and are gone when destroyed", accounting},
    {"memory/footprint", "pn_report", "a program takes what its report says", footprint},
    {"memory/out_of_memory", "R10", "a refused buffer changes nothing", out_of_memory},
    {"memory/buffers", "buffer_create", "apart, aligned, whole", buffers},
    {"memory/leak", "R2", "open, run, close, many times", leak},
};

}  // namespace

std::span<const Case> memory_cases() { return kCases; }

}  // namespace pn::check
