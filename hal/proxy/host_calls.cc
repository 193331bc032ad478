// SPDX-License-Identifier: Apache-2.0
//
// The slots of pn_plugin in the backend host; see host_server.h.
#include "hal/proxy/host_lists.h"

#include <chrono>

namespace pn::proxy {

namespace {

uint32_t free_slot(const std::vector<std::shared_ptr<HostDevice>>& devices) {
  uint64_t taken = 0;
  static_assert(kBoardDevices <= 64);
  for (const auto& device : devices)
    if (device->slot < kBoardDevices) taken |= uint64_t{1} << device->slot;
  for (uint32_t slot = 0; slot < kBoardDevices; ++slot)
    if ((taken >> slot & 1) == 0) return slot;
  return kBoardDevices;
}

// For an id that stands for nothing: the plugin refuses handle 0 in its own words.
std::shared_ptr<HostDevice> device_or_none(const Objects& objects, uint64_t id) {
  std::shared_ptr<HostDevice> found = objects.devices.find(id);
  return found != nullptr ? found : std::make_shared<HostDevice>();
}

}  // namespace

// ---- dies ---------------------------------------------------------------------------------------

void HostServer::devices_list(Message&, Reader& in, Reply& reply) {
  give_list<pn_device_info>(in.pod<uint32_t>(), reply, api().devices);
}

void HostServer::device_open(Message&, Reader& in, Reply& reply) {
  auto device = std::make_shared<HostDevice>();
  reply.status = api().device_open(in.pod<uint32_t>(), &device->handle, &reply.error);
  if (reply.status != PN_OK) return;
  reply.status = objects_->list_heaps(device.get(), &reply.error);
  if (reply.status != PN_OK) return api().device_close(device->handle);
  device->slot = free_slot(objects_->devices.all());
  look(*device);
  const uint64_t id = objects_->next_id();
  reply.payload.pod(id);
  reply.payload.pod(device->slot);
  objects_->devices.put(id, std::move(device));
}

void HostServer::device_close(Message&, Reader& in, Reply&) {
  const auto id = in.pod<uint64_t>();
  const auto device = objects_->devices.take(id);
  if (device == nullptr) return;
  load_->device_closed(id);
  {
    std::lock_guard lock(board_mutex_);  // the heart may be about to look at it
    device->closed = true;
  }
  api().device_close(device->handle);
}

void HostServer::heaps(Message&, Reader& in, Reply& reply) {
  const auto device = objects_->devices.find(in.pod<uint64_t>());
  const auto room = in.pod<uint32_t>();
  if (device == nullptr) {
    give_list<pn_heap_info>(room, reply, [this](uint32_t* count, pn_heap_info* out, pn_error* e) {
      return api().heaps(pn_device{}, count, out, e);
    });
    return;
  }
  const auto count = static_cast<uint32_t>(device->shown.size());
  reply.status = room != 0 && room < count ? PN_INCOMPLETE : PN_OK;
  reply.payload.pod(count);
  reply.payload.list(device->shown.data(), std::min(room, count));
}

// ---- buffers ------------------------------------------------------------------------------------

void HostServer::buffer_create(Message&, Reader& in, Reply& reply) {
  const auto device = device_or_none(*objects_, in.pod<uint64_t>());
  const auto heap = in.pod<uint32_t>();
  const auto bytes = in.pod<uint64_t>();
  std::shared_ptr<HostBuffer> buffer;
  reply.status = objects_->create_buffer(*device, heap, bytes, &buffer, &reply.error);
  if (reply.status != PN_OK) return;
  const uint64_t id = objects_->next_id();
  reply.payload.pod(id);
  reply.payload.pod(buffer->shared.bytes());
  if (buffer->shared.bytes() != 0) reply.fds.push_back(buffer->shared.fd());
  objects_->buffers.put(id, std::move(buffer));
  look(*device);
}

void HostServer::buffer_destroy(Message&, Reader& in, Reply&) {
  const auto buffer = objects_->buffers.take(in.pod<uint64_t>());
  if (buffer == nullptr) return;
  objects_->destroy(buffer.get());
  for (const auto& device : objects_->devices.all()) look(*device);
}

// ---- programs -----------------------------------------------------------------------------------

void HostServer::program_query(Message&, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  PlanParts parts;
  read_plan(in, &parts);
  const auto room = std::min(in.pod<uint32_t>(), 65536u);
  const bool costs = in.pod<uint32_t>() != 0, units = in.pod<uint32_t>() != 0;
  pn_span span{};
  span.struct_size = sizeof span;
  pn_cost cost{};
  cost.struct_size = sizeof cost;
  std::vector<pn_span> span_list(room, span);
  std::vector<pn_cost> cost_list(costs ? parts.shapes.size() : 0, cost);
  std::vector<uint64_t> unit_list(units ? parts.caches.size() : 0);
  pn_report report{};
  report.struct_size = sizeof report;
  report.span_count = room;
  report.spans = room != 0 ? span_list.data() : nullptr;
  report.costs = costs ? cost_list.data() : nullptr;
  report.unit_bytes = units ? unit_list.data() : nullptr;
  reply.status = api().program_query(device, &parts.plan, &report, &reply.error);
  span_list.resize(std::min(room, report.span_count));
  if (report.step_bytes_max == 0 || report.step_bytes_max > kStepBytesMax)
    report.step_bytes_max = kStepBytesMax;
  reply.payload.pod(report);
  reply.payload.list(span_list.data(), span_list.size());
  reply.payload.list(cost_list.data(), cost_list.size());
  reply.payload.list(unit_list.data(), unit_list.size());
}

void HostServer::program_create(Message&, Reader& in, Reply& reply) {
  const auto device_id = in.pod<uint64_t>();
  PlanParts parts;
  read_plan(in, &parts);
  std::vector<pn_binding> bindings = in.list<pn_binding>();
  auto program = std::make_shared<HostProgram>();
  for (pn_binding& binding : bindings) {
    const bool slot = binding.kind == PN_BIND_SLOT && binding.index < parts.slots.size();
    if (slot && parts.slots[binding.index].kind == PN_SLOT_INPUT)
      program->inputs.push_back(binding.slice);
    if (slot && parts.slots[binding.index].kind == PN_SLOT_OUTPUT)
      program->outputs.push_back(binding.slice);
    binding.slice = objects_->slice(binding.slice);
  }
  reply.status = api().program_create(objects_->device(device_id), &parts.plan,
                                      static_cast<uint32_t>(bindings.size()), bindings.data(),
                                      &program->handle, &reply.error);
  if (reply.status != PN_OK) return;
  const uint64_t id = objects_->next_id();
  reply.payload.pod(id);
  objects_->programs.put(id, std::move(program));
}

void HostServer::program_status(Message&, Reader& in, Reply& reply) {
  const pn_program program = objects_->program(in.pod<uint64_t>());
  give_one<pn_program_status>(reply, [&](pn_program_status* out, pn_error* err) {
    return api().program_status(program, out, err);
  });
}

void HostServer::program_destroy(Message&, Reader& in, Reply&) {
  const auto program = objects_->programs.take(in.pod<uint64_t>());
  if (program == nullptr) return;
  api().program_destroy(program->handle);
  for (const auto& device : objects_->devices.all()) look(*device);
}

// ---- queues -------------------------------------------------------------------------------------

void HostServer::queue_create(Message& message, Reader& in, Reply& reply) {
  const pn_device device = objects_->device(in.pod<uint64_t>());
  const auto kind = in.pod<uint32_t>(), depth = in.pod<uint32_t>();
  if (message.fds.size() != 1) {
    reply.status = set_error(&reply.error, PN_INVALID, "queue_create: no ring came with it");
    return;
  }
  pn_queue queue{};
  reply.status = api().queue_create(device, kind, depth, &queue, &reply.error);
  if (reply.status != PN_OK) return;
  auto ring = Ring::map(std::move(message.fds[0]));
  if (!ring) {
    api().queue_destroy(queue);
    reply.status = set_error(&reply.error, PN_OUT_OF_MEMORY, ring.error().message);
    return;
  }
  const uint64_t id = objects_->next_id();
  reply.payload.pod(id);
  queues_.put(id, std::make_shared<HostQueue>(*objects_, queues_, queue, std::move(*ring)));
}

// Others look at a queue for a moment only; it must end here, on the [control] thread.
void HostServer::queue_destroy(Message&, Reader& in, Reply&) {
  std::shared_ptr<HostQueue> queue = queues_.take(in.pod<uint64_t>());
  while (queue.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  queue.reset();
}

}  // namespace pn::proxy
