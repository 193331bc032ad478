// SPDX-License-Identifier: Apache-2.0
//
// The named interfaces in the backend host; see host_server.h.
#include "hal/proxy/host_lists.h"
#include "hal/proxy/sizes.h"

namespace pn::proxy {

template <class T>
const T* HostServer::interface(Reply& reply) const {
  const T* table = objects_->plugin().interface<T>();
  if (table == nullptr)
    reply.status = set_error(&reply.error, PN_UNSUPPORTED, "the plugin has no such interface");
  return table;
}

// ---- layout -------------------------------------------------------------------------------------

void HostServer::layout_rank(Message&, Reader& in, Reply& reply) {
  const auto weight = in.pod<pn_weight>();
  const auto target = in.pod<uint64_t>();
  const auto room = in.pod<uint32_t>();
  const auto* layout = interface<pn_layout_api>(reply);
  if (layout == nullptr) return;
  give_list<pn_layout_choice>(room, reply, [&](uint32_t* n, pn_layout_choice* out, pn_error* err) {
    return layout->rank(&weight, target, n, out, err);
  });
}

bool HostServer::find_choice(const pn_weight& weight, uint64_t target, uint64_t wanted,
                             pn_layout_choice* out, Reply& reply) const {
  const auto* layout = interface<pn_layout_api>(reply);
  if (layout == nullptr) return false;
  pn_layout_choice blank{};
  blank.struct_size = sizeof blank;
  std::vector<pn_layout_choice> choices(16, blank);
  uint32_t count = 16;
  reply.status = layout->rank(&weight, target, &count, choices.data(), &reply.error);
  if (reply.status < 0) return false;
  reply.status = PN_OK;
  for (uint32_t i = 0; i < std::min(count, 16u); ++i) {
    if (choices[i].layout != wanted) continue;
    *out = choices[i];
    return true;
  }
  reply.status = set_error(&reply.error, PN_INVALID,
                           "layout " + std::to_string(wanted) + " is none of this weight's");
  return false;
}

void HostServer::layout_sizes(Message&, Reader& in, Reply& reply) {
  const auto weight = in.pod<pn_weight>();
  const auto target = in.pod<uint64_t>(), layout = in.pod<uint64_t>();
  pn_layout_choice choice{};
  if (!find_choice(weight, target, layout, &choice, reply)) return;
  reply.payload.pod(choice.tile_bytes);
  reply.payload.pod(choice.tile_count);
}

void HostServer::layout_convert(Message&, Reader& in, Reply& reply) {
  const auto weight = in.pod<pn_weight>();
  const auto target = in.pod<uint64_t>(), layout = in.pod<uint64_t>();
  const auto first = in.pod<uint64_t>(), count = in.pod<uint64_t>();
  const std::span<const std::byte> source = in.bytes();
  pn_layout_choice choice{};
  if (!find_choice(weight, target, layout, &choice, reply)) return;
  // Past the end the plugin must refuse before it writes: room for one tile is enough then.
  const bool inside = first <= choice.tile_count && count <= choice.tile_count - first;
  std::vector<std::byte> out((inside ? count : 1) * choice.tile_bytes);
  reply.status = interface<pn_layout_api>(reply)->convert(&weight, target, layout, source.data(),
                                                          out.data(), first, count, &reply.error);
  if (reply.status == PN_OK) reply.payload.list(out.data(), inside ? out.size() : 0);
}

void HostServer::layout_decode(Message&, Reader& in, Reply& reply) {
  const auto weight = in.pod<pn_weight>();
  const auto target = in.pod<uint64_t>(), layout = in.pod<uint64_t>();
  const auto first = in.pod<uint64_t>(), count = in.pod<uint64_t>();
  const std::span<const std::byte> tiles = in.bytes();
  pn_layout_choice choice{};
  if (!find_choice(weight, target, layout, &choice, reply)) return;
  std::vector<float> out(decoded_floats(weight, choice.tile_count, first, count));
  reply.status = interface<pn_layout_api>(reply)->decode(&weight, target, layout, tiles.data(),
                                                         out.data(), first, count, &reply.error);
  if (reply.status == PN_OK)
    reply.payload.list(reinterpret_cast<const std::byte*>(out.data()), out.size() * sizeof(float));
}

void HostServer::layout_targets(Message&, Reader&, Reply& reply) {
  const auto* layout = interface<pn_layout_api>(reply);
  if (layout == nullptr) return;
  uint32_t count = 0;
  reply.status = layout->targets(&count, nullptr, &reply.error);
  if (reply.status < 0) return;
  std::vector<pn_pair> pairs(std::min(count, 4096u));
  count = static_cast<uint32_t>(pairs.size());
  reply.status = pairs.empty() ? PN_OK : layout->targets(&count, pairs.data(), &reply.error);
  if (reply.status < 0) return;
  reply.payload.pod(count);
  for (uint32_t i = 0; i < count; ++i) {
    reply.payload.text(pairs[i].key);
    reply.payload.text(pairs[i].value);
  }
}

// ---- hostmem, sampler, graph, topology, peer ----------------------------------------------------

void HostServer::hostmem_import(Message& message, Reader& in, Reply& reply) {
  const auto device = objects_->devices.find(in.pod<uint64_t>());
  const auto range = in.pod<pn_import>();
  if (interface<pn_hostmem_api>(reply) == nullptr) return;
  if (device == nullptr || message.fds.size() != 1) {
    reply.status = set_error(&reply.error, PN_INVALID, "import: no such device, or no descriptor");
    return;
  }
  std::shared_ptr<HostBuffer> buffer;
  reply.status = objects_->import(*device, range, std::move(message.fds[0]), &buffer, &reply.error);
  if (reply.status != PN_OK) return;
  const uint64_t id = objects_->next_id();
  reply.payload.pod(id);
  objects_->buffers.put(id, std::move(buffer));
}

void HostServer::sampler_describe(Message&, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  const auto* sampler = interface<pn_sampler_api>(reply);
  if (sampler == nullptr) return;
  give_one<pn_sampler_info>(reply, [&](pn_sampler_info* out, pn_error* err) {
    return sampler->describe(device, out, err);
  });
}

void HostServer::graph_describe(Message&, Reader& in, Reply& reply) {
  const pn_program program = objects_->program(in.pod<uint64_t>());
  const auto shape = in.pod<uint32_t>();
  const auto* graph = interface<pn_graph_api>(reply);
  if (graph == nullptr) return;
  give_one<pn_launch_info>(reply, [&](pn_launch_info* out, pn_error* err) {
    return graph->describe(program, shape, out, err);
  });
}

void HostServer::topology_edges(Message&, Reader& in, Reply& reply) {
  const auto room = in.pod<uint32_t>();
  const auto* topology = interface<pn_topology_api>(reply);
  if (topology != nullptr) give_list<pn_edge>(room, reply, topology->edges);
}

void HostServer::peer_connect(Message&, Reader& in, Reply& reply) {
  const pn_device from = objects_->device(in.pod<uint64_t>());
  const pn_device to = objects_->device(in.pod<uint64_t>());
  const auto* peer = interface<pn_peer_api>(reply);
  if (peer == nullptr) return;
  uint64_t bytes = 0;
  reply.status = peer->connect(from, to, &bytes, &reply.error);
  reply.payload.pod(bytes);
}

// ---- telemetry, reset ---------------------------------------------------------------------------

void HostServer::telemetry_health(Message&, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  const auto* telemetry = interface<pn_telemetry_api>(reply);
  if (telemetry == nullptr) return;
  uint32_t health = 0;
  char reason[128] = "";
  reply.status = telemetry->health(device, &health, reason, &reply.error);
  reason[sizeof reason - 1] = 0;
  reply.payload.pod(health);
  reply.payload.text(reason);
}

void HostServer::telemetry_readings(Message&, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  const auto room = in.pod<uint32_t>();
  const auto* telemetry = interface<pn_telemetry_api>(reply);
  if (telemetry == nullptr) return;
  give_list<pn_reading>(room, reply, [&](uint32_t* n, pn_reading* out, pn_error* err) {
    return telemetry->readings(device, n, out, err);
  });
}

void HostServer::telemetry_occupants(Message&, Reader& in, Reply& reply) {
  const auto index = in.pod<uint32_t>(), room = in.pod<uint32_t>();
  const auto* telemetry = interface<pn_telemetry_api>(reply);
  if (telemetry == nullptr) return;
  give_list<pn_occupant>(room, reply, [&](uint32_t* n, pn_occupant* out, pn_error* err) {
    return telemetry->occupants(index, n, out, err);
  });
}

void HostServer::reset_describe(Message&, Reader& in, Reply& reply) {
  const auto domain = in.pod<uint32_t>();
  const auto* reset = interface<pn_reset_api>(reply);
  if (reset == nullptr) return;
  give_one<pn_reset_info>(
      reply, [&](pn_reset_info* out, pn_error* err) { return reset->describe(domain, out, err); });
}

void HostServer::reset_reset(Message&, Reader& in, Reply& reply) {
  const auto domain = in.pod<uint32_t>();
  const auto timeout = in.pod<uint64_t>();
  const auto* reset = interface<pn_reset_api>(reply);
  if (reset != nullptr) reply.status = reset->reset(domain, timeout, &reply.error);
}

void HostServer::reset_self_check(Message&, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  const auto* reset = interface<pn_reset_api>(reply);
  if (reset != nullptr) reply.status = reset->self_check(device, &reply.error);
}

// ---- load ---------------------------------------------------------------------------------------

void HostServer::load_file(Message& message, Reader& in, Reply& reply) {
  const auto bytes = in.pod<uint64_t>();
  if (message.fds.size() != 1) {
    reply.status = set_error(&reply.error, PN_INVALID, "load: no descriptor came with it");
    return;
  }
  uint64_t source = 0;
  reply.status = load_->open(std::move(message.fds[0]), bytes, &source, &reply.error);
  reply.payload.pod(source);
}

void HostServer::load_close(Message&, Reader& in, Reply&) { load_->close(in.pod<uint64_t>()); }

// On a bulk thread.
void HostServer::load_place(Message&, Reader& in, Reply& reply) {
  const auto device = in.pod<uint64_t>();
  auto piece = in.pod<pn_load_piece>();
  const auto weight = in.pod<pn_weight>();
  const std::span<const std::byte> computed = in.bytes();
  piece.weight = &weight;
  piece.computed = computed.data();
  if (piece.source == 0 && piece.bytes > computed.size()) {
    reply.status = set_error(&reply.error, PN_INVALID, "load: fewer bytes came than were named");
    return;
  }
  reply.status = load_->place(device, piece, &reply.error);
}

}  // namespace pn::proxy
