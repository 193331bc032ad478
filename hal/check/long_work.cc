// SPDX-License-Identifier: Apache-2.0
//
// See long_work.h.
#include "hal/check/long_work.h"

namespace pn::check {

namespace {

constexpr uint32_t kCommandsMax = 512;

}  // namespace

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

pn_command copy_of(const pn_slice& from, const pn_slice& to) {
  pn_command c{};
  c.kind = PN_CMD_COPY;
  c.source = from;
  c.target = to;
  return c;
}

pn_submit LongWork::submit(uint64_t value) const {
  pn_submit s{};
  s.struct_size = sizeof s;
  s.command_count = static_cast<uint32_t>(commands.size());
  s.commands = commands.data();
  s.value = value;
  return s;
}

Result<LongWork> long_work(Side& side, double ms) {
  LongWork work;
  PN_TRY(work.a, side.place(kWorkBytes));
  PN_TRY(work.b, side.place(kWorkBytes));
  PN_TRY(side.fill(work.a, 0x21));
  PN_TRY(side.fill(work.b, 0x42));
  work.commands = {copy_of(work.a.all(), work.b.all())};
  while (true) {
    const auto start = Clock::now();
    PN_TRY(side.execute(work.commands, {}));
    work.ms = ms_since(start);
    if (work.ms >= ms || work.commands.size() >= kCommandsMax) return work;
    const std::vector<pn_command> same = work.commands;
    work.commands.insert(work.commands.end(), same.begin(), same.end());
  }
}

}  // namespace pn::check
