// SPDX-License-Identifier: Apache-2.0
//
// The inside of the fake plugin: its objects, shared by fake_plugin.cc (tables, memory) and
// fake_program.cc (programs, steps).
#pragma once

#include <deque>

#include "tests/support/fake_plugin.h"

namespace pn::test {

struct FakeBuffer {
  uint32_t heap = 0;
  std::vector<std::byte> bytes;
};

struct FakeLane {
  pn_lane setup{};
  std::vector<uint32_t> table;  // page of each index, PN_NONE unset
  bool live = false;
};

struct FakeProgram {
  std::vector<pn_shape> shapes;
  uint32_t lanes = 0;
  uint32_t page_tokens = 0;
  uint32_t emit_vocab = 0;
  std::vector<pn_binding> bindings;
  std::vector<FakeLane> lane;
  std::map<uint32_t, std::vector<int32_t>> pages;  // tokens that were written there
  std::vector<int32_t> ids;                        // (lanes)
};

struct FakePlugin::Pending {
  uint64_t value = 0;
  uint64_t number = 0;  // of the step since reset(), from 1
  uint64_t start_ns = 0;
  std::vector<pn_command> commands;
  std::vector<int32_t> tokens;
  std::vector<pn_lane> lanes;
  std::vector<pn_pages> pages;
  std::vector<pn_entry> entries;
  std::vector<pn_row> rows;
};

struct FakeQueue {
  uint32_t state = PN_QUEUE_OK;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  uint64_t last_done_ns = 0;
  std::deque<FakePlugin::Pending> pending;
};

struct FakePlugin::State {
  Knobs knobs;
  Counters counters;
  uint64_t allowed = 0;  // by complete()
  uint64_t next_id = 1;
  std::map<uint64_t, FakeBuffer> buffers;
  std::map<uint64_t, FakeProgram> programs;
  std::map<uint64_t, FakeQueue> queues;
};

pn_status fake_error(pn_error* error, pn_status code, const std::string& message);
std::byte* fake_at(FakePlugin::State& state, const pn_slice& slice);

// fake_program.cc
pn_status fake_query(pn_device device, const pn_plan* plan, pn_report* report, pn_error* error);
pn_status fake_create(pn_device device, const pn_plan* plan, uint32_t count,
                      const pn_binding* bindings, pn_program* out, pn_error* error);
void fake_check(FakePlugin::State& state, const FakeProgram& program, const pn_step& step);
void fake_execute(FakePlugin::State& state, const FakePlugin::Pending& pending);
const pn_layout_api* fake_layout();

}  // namespace pn::test
