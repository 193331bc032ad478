// SPDX-License-Identifier: Apache-2.0
//
// The step path of an isolated plugin: submit writes a record, query reads words. No call is made
// and nothing is allocated but for queue_create, queue_error and queue_destroy.
#include "hal/proxy/proxy_queue.h"

#include <algorithm>

#include "hal/proxy/proxy.h"
#include "hal/proxy/step_wire.h"

namespace pn::proxy {

namespace {

constexpr uint64_t kNapNs = 50'000'000;  // between looks at whether the process lives

}  // namespace

bool RemoteQueue::full() {
  const uint64_t done = ring.words().completed.load(std::memory_order_acquire);
  while (count != 0 && values[first] <= done) {
    first = (first + 1) % values.size();
    --count;
  }
  return count == values.size();
}

void RemoteQueue::push(uint64_t value) {
  values[(first + count) % values.size()] = value;
  ++count;
  last = value;
}

pn_status Proxy::queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                              pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "queue_create: out is NULL");
  auto ring = Ring::create();
  if (!ring) return set_error(err, PN_OUT_OF_MEMORY, ring.error().message);
  Writer args;
  args.pod(device.id);
  args.pod(kind);
  args.pod(depth);
  const int fds[] = {ring->fd()};
  Answer answer = ask(device.id, Call::queue_create, args, err, kControlMs, fds);
  if (answer.status != PN_OK) return answer.status;
  auto queue = std::make_unique<RemoteQueue>();
  queue->link = link();
  queue->ring = std::move(*ring);
  queue->values.resize(std::max(depth, 8u));
  out->id = answer.in.pod<uint64_t>();
  std::unique_lock lock(queues_mutex_);
  queues_[out->id] = std::move(queue);
  return PN_OK;
}

RemoteQueue* Proxy::find_queue(uint64_t id) const {
  std::shared_lock lock(queues_mutex_);
  auto at = queues_.find(id);
  return at == queues_.end() ? nullptr : at->second.get();
}

pn_status Proxy::refuse_submit(const RemoteQueue& queue, pn_error* err) {
  pn_error why = queue.link->lost() ? queue.link->loss() : queue.ring.words().error;
  if (err != nullptr) pn_write(err, &why, sizeof why);
  return why.code;
}

pn_status Proxy::queue_submit(pn_queue handle, const pn_submit* submit, pn_error* err) {
  RemoteQueue* queue = find_queue(handle.id);
  if (queue == nullptr) return set_error(err, PN_INVALID, "queue_submit: no such queue");
  if (submit == nullptr) return set_error(err, PN_INVALID, "queue_submit: submit is NULL");
  if (queue->link->lost() || queue->ring.words().state.load(std::memory_order_acquire) != 0)
    return refuse_submit(*queue, err);
  const char* unknown = "";
  const uint64_t bytes = record_bytes(*submit, &unknown);
  if (bytes == 0) {
    return set_error(err, PN_UNSUPPORTED,
                     std::string("queue_submit: ") + unknown +
                         " says something newer than this pantheon knows, or is missing");
  }
  if (submit->value <= queue->last) {
    return set_error(err, PN_INVALID,
                     "queue_submit: value " + std::to_string(submit->value) +
                         " is not above the queue's last, " + std::to_string(queue->last));
  }
  if (bytes > kRecordMax) {
    return set_error(err, PN_INVALID,
                     "queue_submit: " + std::to_string(bytes) +
                         " bytes of steps; an isolated plugin takes at most " +
                         std::to_string(kRecordMax) + " in one submit");
  }
  std::byte* to = queue->full() ? nullptr : queue->ring.reserve(bytes);
  if (to == nullptr) return PN_NOT_READY;
  write_record(*submit, to);
  queue->ring.publish();
  queue->push(submit->value);
  return PN_OK;
}

pn_status Proxy::queue_query(uint32_t count, const pn_queue* queues, pn_progress* out,
                             pn_error* err) {
  if (count != 0 && (queues == nullptr || out == nullptr))
    return set_error(err, PN_INVALID, "queue_query: a list is NULL");
  for (uint32_t i = 0; i < count; ++i) {
    const RemoteQueue* queue = find_queue(queues[i].id);
    if (queue == nullptr) return set_error(err, PN_INVALID, "queue_query: no such queue");
    const RingWords& words = queue->ring.words();
    out[i] = {};
    out[i].state = words.state.load(std::memory_order_acquire);
    out[i].completed = words.completed.load(std::memory_order_acquire);
    if (queue->link->lost()) out[i].state = PN_QUEUE_LOST;
  }
  return PN_OK;
}

pn_status Proxy::queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  RemoteQueue* queue = find_queue(point.queue.id);
  if (queue == nullptr) return set_error(err, PN_INVALID, "queue_wait: no such queue");
  if (host_->thread_check(host_->self, PN_THREAD_BLOCK) == 0)
    return set_error(err, PN_INVALID, "queue_wait: called on a serving thread");
  RingWords& words = queue->ring.words();
  const uint64_t start = monotonic_ns();
  for (;;) {
    const uint32_t seen = words.bell.load(std::memory_order_seq_cst);
    if (words.completed.load(std::memory_order_acquire) >= point.value) return PN_OK;
    const bool well = words.state.load(std::memory_order_acquire) == PN_QUEUE_OK;
    if (!well || queue->link->lost()) return refuse_submit(*queue, err);
    const uint64_t passed = monotonic_ns() - start;
    if (passed >= timeout_ns) return PN_NOT_READY;
    queue->ring.await_change(seen, std::min(timeout_ns - passed, kNapNs));
  }
}

pn_status Proxy::queue_error(pn_queue handle, pn_error* err) {
  RemoteQueue* queue = find_queue(handle.id);
  if (queue == nullptr) return set_error(err, PN_INVALID, "queue_error: no such queue");
  const bool well = queue->ring.words().state.load(std::memory_order_acquire) == PN_QUEUE_OK;
  if (!well || queue->link->lost()) {
    refuse_submit(*queue, err);
  } else {
    set_error(err, PN_OK, "the queue is well");
  }
  return PN_OK;
}

void Proxy::queue_destroy(pn_queue handle) {
  if (find_queue(handle.id) == nullptr) return;
  tell(handle.id, Call::queue_destroy);
  std::unique_lock lock(queues_mutex_);
  queues_.erase(handle.id);
}

}  // namespace pn::proxy
