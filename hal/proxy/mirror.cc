// SPDX-License-Identifier: Apache-2.0
//
// See mirror.h.
#include "hal/proxy/mirror.h"

#include <algorithm>
#include <cstring>

namespace pn::proxy {

namespace {

void add(const Objects& objects, const pn_slice& slice, std::vector<MirrorSlice>* to) {
  if (slice.buffer.id == 0 || slice.bytes == 0) return;
  std::shared_ptr<HostBuffer> buffer = objects.buffers.find(slice.buffer.id);
  if (buffer == nullptr || !buffer->mirrored || slice.offset >= buffer->bytes) return;
  const uint64_t bytes = std::min(slice.bytes, buffer->bytes - slice.offset);
  to->push_back({std::move(buffer), slice.offset, bytes});
}

void add_step(const Objects& objects, const pn_step& step, MirrorWork* work) {
  for (uint32_t i = 0; i < step.lane_count; ++i) add(objects, step.lanes[i].bias, &work->in);
  for (uint32_t i = 0; i < step.row_count; ++i) {
    if (step.rows[i].mask_form != PN_MASK_NONE) add(objects, step.rows[i].mask, &work->in);
    add(objects, step.rows[i].target, &work->out);
  }
}

}  // namespace

MirrorWork mirrored_slices(const Objects& objects, const pn_submit& submit) {
  MirrorWork work;
  for (uint32_t i = 0; i < submit.command_count; ++i) {
    const pn_command& command = submit.commands[i];
    if (command.kind == PN_CMD_COPY) {
      add(objects, command.source, &work.in);
      add(objects, command.target, &work.out);
      continue;
    }
    const auto program = objects.programs.find(command.program.id);
    if (program == nullptr) continue;
    for (const pn_slice& slot : program->inputs) add(objects, slot, &work.in);
    for (const pn_slice& slot : program->outputs) add(objects, slot, &work.out);
  }
  for (uint32_t i = 0; i < submit.step_count; ++i) add_step(objects, submit.steps[i], &work);
  return work;
}

void copy_in(const MirrorSlice& s) {
  std::memcpy(s.buffer->plugin_at + s.offset, s.buffer->shared.at() + s.offset, s.bytes);
}

void copy_out(const MirrorSlice& s) {
  std::memcpy(s.buffer->shared.at() + s.offset, s.buffer->plugin_at + s.offset, s.bytes);
}

bool overlap(const MirrorSlice& a, const MirrorSlice& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace pn::proxy
