// SPDX-License-Identifier: Apache-2.0
//
// See host_server.h: the loop, hello, the heart.
#include "hal/proxy/host_server.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace pn::proxy {

namespace {

constexpr int kStuckExit = 86;

void last_words(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

HostServer::Handler HostServer::handler(Call call) {
  static constexpr Handler kHandlers[] = {&HostServer::hello,
                                          &HostServer::devices_list,
                                          &HostServer::device_open,
                                          &HostServer::device_close,
                                          &HostServer::heaps,
                                          &HostServer::buffer_create,
                                          &HostServer::buffer_destroy,
                                          &HostServer::program_query,
                                          &HostServer::program_create,
                                          &HostServer::program_status,
                                          &HostServer::program_destroy,
                                          &HostServer::queue_create,
                                          &HostServer::queue_destroy,
                                          &HostServer::layout_rank,
                                          &HostServer::layout_sizes,
                                          &HostServer::layout_convert,
                                          &HostServer::layout_decode,
                                          &HostServer::layout_targets,
                                          &HostServer::hostmem_import,
                                          &HostServer::sampler_describe,
                                          &HostServer::graph_describe,
                                          &HostServer::topology_edges,
                                          &HostServer::peer_connect,
                                          &HostServer::telemetry_health,
                                          &HostServer::telemetry_readings,
                                          &HostServer::telemetry_occupants,
                                          &HostServer::reset_describe,
                                          &HostServer::reset_reset,
                                          &HostServer::reset_self_check,
                                          &HostServer::load_file,
                                          &HostServer::load_close,
                                          &HostServer::load_place,
                                          &HostServer::shutdown};
  static_assert(std::size(kHandlers) == static_cast<size_t>(Call::count));
  return call < Call::count ? kHandlers[static_cast<size_t>(call)] : nullptr;
}

void HostServer::run() {
  Message message;
  while (!ending_ && control_.receive(&message, Channel::kNever) == Outcome::ok) {
    std::lock_guard lock(plugin_mutex_);
    if (!answer(control_, message)) return;
  }
}

bool HostServer::answer(Channel& channel, Message& message) {
  Reply reply;
  Reader in(message.body);
  const Handler handle = handler(static_cast<Call>(message.call));
  const bool greeted = objects_ != nullptr || message.call == static_cast<uint32_t>(Call::hello);
  if (handle == nullptr || !greeted) {
    reply.status = set_error(&reply.error, PN_INVALID, "this backend host knows no such call");
  } else {
    (this->*handle)(message, in, reply);
  }
  if (reply.status < 0 && reply.error.code == PN_OK) reply.error.code = reply.status;
  Writer whole;
  whole.pod(reply.status);
  whole.pod(reply.error);
  const std::span<const std::byte> payload = reply.payload.view();
  whole.raw(payload.data(), payload.size());
  return channel.send(message.call, whole.view(), reply.fds, Channel::kNever) == Outcome::ok;
}

void HostServer::serve_bulk(Channel channel) {
  ::pthread_setname_np(::pthread_self(), "pn-bulk");
  Message message;
  while (channel.receive(&message, Channel::kNever) == Outcome::ok) {
    if (message.call != static_cast<uint32_t>(Call::load_place) || !answer(channel, message))
      return;
  }
}

// ---- hello and goodbye --------------------------------------------------------------------------

void HostServer::hello(Message& message, Reader& in, Reply& reply) {
  const auto protocol = in.pod<uint32_t>(), minor = in.pod<uint32_t>();
  if (protocol != kProtocol || minor != PN_ABI_MINOR) {
    reply.status = set_error(&reply.error, PN_UNSUPPORTED,
                             "pantheon-backend-host is of another build: install both together");
    return;
  }
  generation_ = in.pod<uint32_t>();
  mirror_all_ = in.pod<uint32_t>() != 0;
  silence_ms_ = in.pod<uint32_t>();
  load_plugin(in, reply);
  if (reply.status != PN_OK) return;
  auto board = SharedMemory::create("pantheon-board", sizeof(Board));
  if (!board) {
    reply.status = set_error(&reply.error, PN_OUT_OF_MEMORY, board.error().message);
    return;
  }
  board_ = std::move(*board);
  reply.fds.push_back(board_.fd());
  for (Fd& fd : message.fds)
    threads_.emplace_back(
        [this, end = Channel(std::move(fd))]() mutable { serve_bulk(std::move(end)); });
  threads_.emplace_back([this] { beat(); });
}

void HostServer::load_plugin(Reader& in, Reply& reply) {
  hal::LoadRequest request;
  request.plugin = in.text();
  request.search.cache_dir = in.text();
  request.search.probe = false;  // the server has done that
  const auto options = in.pod<uint64_t>();
  for (uint64_t i = 0; i < options && in.ok(); ++i) {
    std::string key = in.text();
    request.options.emplace_back(std::move(key), in.text());
  }
  auto plugin = hal::Plugin::load(request);
  if (!plugin) {
    const bool refused = plugin.error().code == Code::invalid;
    std::string text = plugin.error().message;
    if (text.rfind(request.plugin + ": ", 0) == 0) text.erase(0, request.plugin.size() + 2);
    reply.status = set_error(&reply.error, refused ? PN_INVALID : PN_FAILED, text);
    return;
  }
  const hal::Plugin& p = **plugin;
  const auto* hostmem = p.interface<pn_hostmem_api>();
  uint64_t offered = 0;
  if (p.interface<pn_layout_api>() != nullptr) offered |= kLayout;
  if (hostmem != nullptr) offered |= kHostmem;
  if (p.interface<pn_sampler_api>() != nullptr) offered |= kSampler;
  if (p.interface<pn_graph_api>() != nullptr) offered |= kGraph;
  if (p.interface<pn_topology_api>() != nullptr) offered |= kTopology;
  if (p.interface<pn_peer_api>() != nullptr) offered |= kPeer;
  if (p.interface<pn_telemetry_api>() != nullptr) offered |= kTelemetry;
  if (p.interface<pn_reset_api>() != nullptr) offered |= kReset;
  reply.payload.pod(offered);
  reply.payload.pod<uint32_t>(hostmem != nullptr ? hostmem->alignment : 1);
  objects_ = std::make_unique<Objects>(std::move(*plugin), generation_, mirror_all_);
  load_ = std::make_unique<HostLoad>(*objects_, plugin_mutex_);
}

void HostServer::shutdown(Message&, Reader& in, Reply&) {
  api().shutdown(monotonic_ns() + in.pod<uint64_t>());
  ending_ = true;
}

// ---- the heart ----------------------------------------------------------------------------------

void HostServer::beat() {
  ::pthread_setname_np(::pthread_self(), "pn-heart");
  for (;;) {
    for (const auto& device : objects_->devices.all()) look(*device);
    check_stuck();
    reinterpret_cast<Board*>(board_.at())->beat.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::milliseconds(kBeatMs));
  }
}

void HostServer::look(HostDevice& device) {
  if (device.slot >= kBoardDevices) return;
  pn_memory_status memory{};
  memory.struct_size = sizeof memory;
  pn_error error = no_error();
  std::lock_guard lock(board_mutex_);
  if (device.closed) return;
  const pn_status status = api().memory_status(device.handle, &memory, &error);
  if (status < 0 && error.code == PN_OK) error.code = status;
  BoardSlot& slot = reinterpret_cast<Board*>(board_.at())->slots[device.slot];
  const uint32_t sequence = slot.sequence.load(std::memory_order_relaxed);
  slot.sequence.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.status = status;
  slot.memory = memory;
  slot.error = error;
  slot.sequence.store(sequence + 2, std::memory_order_release);
}

// A submit never blocks: one that does not come back has hung, and with it the queue's thread.
void HostServer::check_stuck() {
  const uint64_t now = monotonic_ns();
  for (const auto& queue : queues_.all()) {
    const uint64_t since = queue->submitting_since();
    if (since == 0 || now < since + silence_ms_ * 1'000'000ull) continue;
    last_words("queue_submit has not returned for " + std::to_string(silence_ms_) + " ms");
    ::_exit(kStuckExit);
  }
}

}  // namespace pn::proxy
