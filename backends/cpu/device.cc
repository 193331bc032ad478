// SPDX-License-Identifier: Apache-2.0
//
// Lists, opens and closes dies. See device.h.
#include "backends/cpu/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

// A running submit ends within this: a chunk of 512 tokens of an 8B model on two cores.
constexpr uint32_t kSettleMs = 60'000;
constexpr uint64_t kLayoutTarget = 1;  // bytes do not depend on the instruction set

bool is_open(uint32_t index) {
  bool open = false;
  state()->dies.each([&](const Die& die) { open = open || die.index == index; });
  return open;
}

void describe(uint32_t index, pn_device_info* out) {
  const DieSpec& spec = state()->specs[index];
  out->struct_size = sizeof(*out);
  out->state = is_open(index) ? PN_STATE_IN_USE : PN_STATE_READY;
  snprintf(out->uid, sizeof(out->uid), "cpu:%u", index);
  snprintf(out->name, sizeof(out->name), "%s", state()->machine.model.c_str());
  // Dies that share a node are one card: they share its memory controller.
  snprintf(reinterpret_cast<char*>(out->card_uid), sizeof(out->card_uid), "node%d", spec.node.id);
  for (const DieSpec& other : state()->specs) {
    if (other.node.id != spec.node.id) continue;
    if (&other < &spec) ++out->die_index;
    ++out->dies_on_card;
  }
  out->host_link_group = static_cast<uint32_t>(std::max(0, spec.node.id));
  out->reset_domain = index;
  out->pci_domain = PN_NONE;
  out->pci_bdf = PN_NONE;
  out->numa_node = spec.node.id;
  out->lost_settle_ms = kSettleMs;
  out->layout_target = kLayoutTarget;
}

}  // namespace

Die::~Die() {
  transfers.reset();
  runs.reset();
}

std::vector<DieSpec> plan_dies(const Machine& machine, const Options& options) {
  std::vector<NumaNode> nodes = machine.nodes;
  if (!options.numa) nodes = {whole_machine(machine)};
  std::vector<uint64_t> caps = options.dies;
  if (caps.empty()) caps.assign(nodes.size(), 0);
  std::vector<DieSpec> specs;
  for (size_t i = 0; i < caps.size(); ++i) {
    DieSpec spec;
    spec.node = nodes[i % nodes.size()];
    spec.cap_bytes = caps[i];
    spec.threads = options.threads;
    if (spec.threads == 0) spec.threads = static_cast<uint32_t>(spec.node.cores.size());
    spec.threads = std::clamp(spec.threads, 1u, kThreadsMax);
    specs.push_back(std::move(spec));
  }
  return specs;
}

pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  if (count == nullptr) return fail(err, PN_INVALID, "devices: count is NULL");
  const uint32_t room = *count;
  const auto have = static_cast<uint32_t>(state()->specs.size());
  *count = have;
  if (room == 0) return PN_OK;
  if (infos == nullptr) return fail(err, PN_INVALID, "devices: infos is NULL");
  for (uint32_t i = 0; i < std::min(room, have); ++i) {
    pn_device_info info = {};
    describe(i, &info);
    pn_write(PN_AT(pn_device_info, infos, i), &info, sizeof(info));
  }
  return room < have ? PN_INCOMPLETE : PN_OK;
}

pn_status device_open(uint32_t index, pn_device* out, pn_error* err) {
  return guarded(err, [&]() -> pn_status {
    if (out == nullptr) return fail(err, PN_INVALID, "device_open: out is NULL");
    State& all = *state();
    if (index >= all.specs.size())
      return fail(err, PN_INVALID, "die %u was asked for, this host has %zu cpu dies", index,
                  all.specs.size());
    std::lock_guard<std::mutex> lock(all.open_mutex);
    if (is_open(index)) return fail(err, PN_INVALID, "cpu die %u is open already", index);
    const DieSpec& spec = all.specs[index];
    auto die = std::make_unique<Die>();
    die->index = index;
    die->node = spec.node;
    die->cap_bytes = spec.cap_bytes;
    die->threads = spec.threads;
    die->runs = Executor::start(*die, die->threads, all.options.pin, all.thread_names);
    if (die->runs == nullptr)
      return fail(err, PN_OUT_OF_MEMORY, "the system refused one of %u threads for cpu die %u",
                  die->threads, index);
    all.thread_names += die->threads;
    Die* raw = die.get();
    const uint64_t id = all.dies.add(std::move(die));
    if (id == 0) return fail(err, PN_OUT_OF_MEMORY, "too many dies are open");
    raw->handle.id = out->id = id;
    const bool reference = all.options.numerics == Numerics::reference;
    log_line(PN_LOG_INFO, "cpu die %u: %s, %u threads, NUMA node %d, cap %llu MiB (0 none)", index,
             reference ? "reference numerics" : isa_name(all.options.isa), raw->threads,
             raw->node.id, static_cast<unsigned long long>(raw->cap_bytes >> 20));
    return PN_OK;
  });
}

void device_close(pn_device device) { state()->dies.remove(device.id); }

Die* find_die(pn_device device, pn_error* err) {
  Die* die = state()->dies.find(device.id);
  if (die == nullptr)
    fail(err, PN_INVALID, "device %#llx is not open", static_cast<unsigned long long>(device.id));
  return die;
}

}  // namespace pn::cpu
