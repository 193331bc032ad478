// SPDX-License-Identifier: Apache-2.0
//
// The named interfaces of an isolated plugin, one message a call. Conversions carry their bytes
// along: they are for tests and tools, a load goes through pantheon.load/1.
#include "hal/proxy/proxy.h"
#include "hal/proxy/proxy_lists.h"
#include "hal/proxy/sizes.h"

#include <algorithm>
#include <cstdio>

namespace pn::proxy {

namespace {

pn_status refuse_weight(pn_error* err, const char* call) {
  return set_error(err, PN_UNSUPPORTED,
                   std::string(call) +
                       ": pn_weight is missing, too short, or says something newer than this "
                       "pantheon knows");
}

// Writes one struct that the answer holds.
template <class T>
pn_status take_one(Answer& answer, T* out) {
  if (answer.status < 0) return answer.status;
  const T value = answer.in.pod<T>();
  pn_write(out, &value, sizeof value);
  return answer.status;
}

pn_status take_bytes(Answer& answer, void* out) {
  if (answer.status != PN_OK) return answer.status;
  const std::span<const std::byte> bytes = answer.in.bytes();
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  return PN_OK;
}

}  // namespace

// ---- pantheon.layout/1 --------------------------------------------------------------------------

pn_status Proxy::layout_rank(const pn_weight* weight, uint64_t target, uint32_t* count,
                             pn_layout_choice* choices, pn_error* err) {
  pn_weight w{};
  if (!known(weight, &w)) return refuse_weight(err, "layout.rank");
  if (count == nullptr) return set_error(err, PN_INVALID, "layout.rank: count is NULL");
  Writer args;
  args.pod(w);
  args.pod(target);
  args.pod(room_of(count, choices));
  Answer answer = ask(0, Call::layout_rank, args, err);
  return take_list(answer, count, choices);
}

pn_status Proxy::layout_convert(const pn_weight* weight, uint64_t target, uint64_t layout,
                                const void* source, void* out, uint64_t first, uint64_t count,
                                pn_error* err) {
  pn_weight w{};
  if (!known(weight, &w)) return refuse_weight(err, "layout.convert");
  const uint64_t bytes = source_bytes(w);
  if (bytes == 0 || source == nullptr || out == nullptr) {
    return set_error(err, PN_UNSUPPORTED,
                     "layout.convert: source or out is NULL, or type " +
                         std::to_string(w.source_type) +
                         " is unknown to this pantheon, which must send its bytes");
  }
  Writer args;
  args.pod(w);
  args.pod(target);
  args.pod(layout);
  args.pod(first);
  args.pod(count);
  args.list(static_cast<const std::byte*>(source), bytes);
  Answer answer = ask(0, Call::layout_convert, args, err);
  return take_bytes(answer, out);
}

pn_status Proxy::layout_decode(const pn_weight* weight, uint64_t target, uint64_t layout,
                               const void* in, float* out, uint64_t first, uint64_t count,
                               pn_error* err) {
  pn_weight w{};
  if (!known(weight, &w)) return refuse_weight(err, "layout.decode");
  Writer sizes;
  sizes.pod(w);
  sizes.pod(target);
  sizes.pod(layout);
  Answer answer = ask(0, Call::layout_sizes, sizes, err);
  if (answer.status != PN_OK) return answer.status;
  const auto tile_bytes = answer.in.pod<uint64_t>(), tile_count = answer.in.pod<uint64_t>();
  if (first > tile_count || count > tile_count - first || in == nullptr || out == nullptr)
    return set_error(err, PN_INVALID, "layout.decode: a NULL argument, or tiles past the end");
  Writer args;
  args.pod(w);
  args.pod(target);
  args.pod(layout);
  args.pod(first);
  args.pod(count);
  args.list(static_cast<const std::byte*>(in), tile_bytes * count);
  answer = ask(0, Call::layout_decode, args, err);
  return take_bytes(answer, out);
}

pn_status Proxy::layout_targets(uint32_t* count, pn_pair* pairs, pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "layout.targets: count is NULL");
  Answer answer = ask(0, Call::layout_targets, {}, err);
  if (answer.status < 0) return answer.status;
  const uint32_t room = room_of(count, pairs);
  *count = answer.in.pod<uint32_t>();
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < *count; ++i) {
    const std::string key = answer.in.text(), value = answer.in.text();
    if (i >= room) continue;
    pairs[i].key = texts_.emplace_back(key).c_str();
    pairs[i].value = texts_.emplace_back(value).c_str();
  }
  return room != 0 && room < *count ? PN_INCOMPLETE : PN_OK;
}

// ---- pantheon.hostmem/1 -------------------------------------------------------------------------

pn_status Proxy::hostmem_import(pn_device device, const pn_import* range, pn_buffer* out,
                                pn_error* err) {
  pn_import in{};
  if (out == nullptr || !known(range, &in))
    return set_error(err, PN_UNSUPPORTED, "import: pn_import or out cannot be understood");
  if (in.fd < 0) {
    return set_error(err, PN_UNSUPPORTED,
                     "import: an isolated plugin maps the range itself and needs its file "
                     "descriptor: copy instead");
  }
  in.address = nullptr;
  Writer args;
  args.pod(device.id);
  args.pod(in);
  const int fds[] = {in.fd};
  Answer answer = ask(device.id, Call::hostmem_import, args, err, kLoadMs, fds);
  if (answer.status == PN_OK) out->id = answer.in.pod<uint64_t>();
  return answer.status;
}

// ---- pantheon.sampler/1, graph/1, topology/1, peer/1 --------------------------------------------

pn_status Proxy::sampler_describe(pn_device device, pn_sampler_info* out, pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "sampler: out is NULL");
  Writer args;
  args.pod(device.id);
  Answer answer = ask(device.id, Call::sampler_describe, args, err);
  return take_one(answer, out);
}

pn_status Proxy::graph_describe(pn_program program, uint32_t shape, pn_launch_info* out,
                                pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "graph.describe: out is NULL");
  Writer args;
  args.pod(program.id);
  args.pod(shape);
  Answer answer = ask(program.id, Call::graph_describe, args, err);
  return take_one(answer, out);
}

pn_status Proxy::topology_edges(uint32_t* count, pn_edge* edges, pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "topology.edges: count is NULL");
  Writer args;
  args.pod(room_of(count, edges));
  Answer answer = ask(0, Call::topology_edges, args, err);
  return take_list(answer, count, edges);
}

pn_status Proxy::peer_connect(pn_device from, pn_device to, uint64_t* device_bytes, pn_error* err) {
  if (device_bytes == nullptr) return set_error(err, PN_INVALID, "peer.connect: NULL argument");
  Writer args;
  args.pod(from.id);
  args.pod(to.id);
  Answer answer = ask(from.id, Call::peer_connect, args, err);
  *device_bytes = answer.in.pod<uint64_t>();
  return answer.status;
}

// ---- pantheon.telemetry/1, reset/1 --------------------------------------------------------------

pn_status Proxy::telemetry_health(pn_device device, uint32_t* health, char* reason, pn_error* err) {
  if (health == nullptr || reason == nullptr)
    return set_error(err, PN_INVALID, "telemetry.health: NULL argument");
  Writer args;
  args.pod(device.id);
  Answer answer = ask(device.id, Call::telemetry_health, args, err, kPollMs);
  if (answer.status < 0) return answer.status;
  *health = answer.in.pod<uint32_t>();
  std::snprintf(reason, 128, "%s", answer.in.text().c_str());
  return answer.status;
}

pn_status Proxy::telemetry_readings(pn_device device, uint32_t* count, pn_reading* list,
                                    pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "telemetry.readings: count is NULL");
  Writer args;
  args.pod(device.id);
  args.pod(room_of(count, list));
  Answer answer = ask(device.id, Call::telemetry_readings, args, err);
  return take_list(answer, count, list);
}

pn_status Proxy::telemetry_occupants(uint32_t index, uint32_t* count, pn_occupant* list,
                                     pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "telemetry.occupants: count is NULL");
  Writer args;
  args.pod(index);
  args.pod(room_of(count, list));
  Answer answer = ask(0, Call::telemetry_occupants, args, err, kLoadMs);
  return take_list(answer, count, list);
}

pn_status Proxy::reset_describe(uint32_t domain, pn_reset_info* out, pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "reset.describe: out is NULL");
  Writer args;
  args.pod(domain);
  Answer answer = ask(0, Call::reset_describe, args, err);
  return take_one(answer, out);
}

pn_status Proxy::reset_reset(uint32_t domain, uint64_t timeout_ns, pn_error* err) {
  Writer args;
  args.pod(domain);
  args.pod(timeout_ns);
  const uint64_t ms = std::min<uint64_t>(timeout_ns / 1'000'000, 3'600'000);
  return ask(0, Call::reset_reset, args, err, kLoadMs + static_cast<uint32_t>(ms)).status;
}

pn_status Proxy::reset_self_check(pn_device device, pn_error* err) {
  Writer args;
  args.pod(device.id);
  return ask(device.id, Call::reset_self_check, args, err).status;
}

// ---- pantheon.load/1 ----------------------------------------------------------------------------

pn_status Proxy::load_open(int32_t fd, uint64_t bytes, uint64_t* source, pn_error* err) {
  Writer args;
  args.pod(bytes);
  const int fds[] = {fd};
  Answer answer = ask(0, Call::load_file, args, err, kLoadMs, fds);
  if (answer.status == PN_OK) *source = answer.in.pod<uint64_t>();
  return answer.status;
}

void Proxy::load_close(uint64_t source) { tell(source, Call::load_close); }

pn_status Proxy::load_place(pn_device device, const pn_load_piece* piece, pn_error* err) {
  Answer answer;
  const std::shared_ptr<Link> to = link_of(device.id, &answer);
  if (to != nullptr) {
    Writer args;
    pn_load_piece flat = *piece;
    flat.weight = nullptr;
    flat.computed = nullptr;
    args.pod(device.id);
    args.pod(flat);
    args.pod(*piece->weight);
    args.list(static_cast<const std::byte*>(piece->computed),
              piece->source == 0 ? piece->bytes : 0);
    answer = to->bulk_call(Call::load_place, args, kLoadMs);
  }
  if (answer.status != PN_OK && err != nullptr) pn_write(err, &answer.error, sizeof answer.error);
  return answer.status;
}

}  // namespace pn::proxy
