// SPDX-License-Identifier: Apache-2.0
//
// The op-loop's own arithmetic, and the loss of a die, through the template's kernels.
//
// Ops, attention, steps and queues are the CPU plugin's tests, linked with this plugin instead.
#include <doctest/doctest.h>
#include <pantheon/oploop.h>

#include <cmath>
#include <cstring>
#include <random>

#include "models/gguf/file.h"
#include "models/quant/dequantise.h"
#include "tests/support/cpu_host.h"

using namespace pn::test;

TEST_CASE("oploop: every half is read as its value and written back; values round to even") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = pn_loop_from_f16(half);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double mantissa = bits & 1023;
    if (exponent == 31) {
      CHECK((mantissa == 0 ? std::isinf(value) : std::isnan(value)));
      if (mantissa == 0) CHECK(pn_loop_to_f16(value) == half);
      continue;
    }
    double want =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if ((bits & 0x8000) != 0) want = -want;
    REQUIRE(static_cast<double>(value) == want);
    REQUIRE(pn_loop_to_f16(value) == half);
  }
  CHECK(pn_loop_to_f16(1 + 0x1p-11f) == 0x3c00);      // a tie: the even one
  CHECK(pn_loop_to_f16(1 + 3 * 0x1p-11f) == 0x3c02);  // a tie: the even one
  CHECK(pn_loop_to_f16(1 + 0x1p-11f + 0x1p-20f) == 0x3c01);
  CHECK(pn_loop_to_f16(65519.0f) == 0x7bff);
  CHECK(pn_loop_to_f16(65520.0f) == 0x7c00);
  CHECK(pn_loop_to_f16(0x1p-25f) == 0);
  CHECK(pn_loop_to_f16(3 * 0x1p-25f) == 2);
}

TEST_CASE("oploop: blocks of every type say what the models' decoder says") {
  std::mt19937_64 engine(11);
  for (uint32_t type : {0u, 1u, 2u, 8u, 12u, 13u, 14u, 30u}) {
    const pn::gguf::TypeInfo* info = pn::gguf::type_info(type);
    const uint64_t n = uint64_t{info->block} * 5;
    REQUIRE(pn_loop_row_bytes(type, n) == uint64_t{info->block_bytes} * 5);
    std::vector<std::byte> row(uint64_t{info->block_bytes} * 5);
    for (int round = 0; round < 40; ++round) {
      for (std::byte& b : row) b = static_cast<std::byte>(engine());
      std::vector<float> got(n), want(n);
      pn_loop_decode(type, row.data(), n, got.data());
      REQUIRE(pn::quant::dequantise(type, row.data(), want).has_value());
      for (uint64_t i = 0; i < n; ++i)
        if (!std::isnan(want[i])) REQUIRE(std::memcmp(&got[i], &want[i], 4) == 0);
    }
  }
  CHECK(pn_loop_row_bytes(3, 32) == 0);  // a type that is not read
  CHECK(pn_loop_row_bytes(8, 40) == 0);  // no whole blocks
}

TEST_CASE("oploop: after a loss everything says so, what was queued settles, and closing works") {
  CpuHost host(HostOptions{{"check_fault", "lost:2"}});
  PlanBuilder plan;
  plan.shapes = {{4, 1, 1, 8}};
  const uint16_t in = plan.slot(8, PN_SLOT_INPUT), out = plan.slot(8, PN_SLOT_OUTPUT);
  pn_op_elementwise twice = {};
  twice.scale = 2;
  pn_op& op = plan.op(PN_OP_UNARY, twice);
  op.in[0] = in;
  op.out[0] = out;
  CpuProgram program(host, plan);
  Steps steps;
  steps.entry(0, 0, {1, 2});
  for (int i = 0; i < 16; ++i) program.slot(in)[i] = static_cast<float>(i);
  REQUIRE(program.run(steps.view()) == PN_OK);
  CHECK(program.slot(out)[5] == 10);
  std::string message;
  CHECK(program.run(steps.view(), 0, &message) == PN_DEVICE_LOST);
  CHECK(message.find("template die 0 was lost") != std::string::npos);

  const pn_plugin& api = host.api();
  const pn_queue queue = host.queue();
  pn_progress progress = {};
  REQUIRE(api.queue_query(1, &queue, &progress, nullptr) == PN_OK);
  CHECK(progress.state == PN_QUEUE_LOST);
  CHECK(progress.completed == 1);
  pn_error err = new_error();
  CHECK(api.queue_error(queue, &err) == PN_OK);
  CHECK(err.code == PN_DEVICE_LOST);
  CHECK(err.scope == PN_SCOPE_DEVICE);
  CHECK(err.recovery == PN_RECOVER_REOPEN_DEVICE);
  pn_memory_status status = {};
  status.struct_size = sizeof(status);
  CHECK(api.memory_status(host.device(), &status, nullptr) == PN_DEVICE_LOST);
  pn_buffer buffer = {};
  void* at = nullptr;
  CHECK(api.buffer_create(host.device(), 0, 64, &buffer, &at, nullptr) == PN_DEVICE_LOST);
  CHECK(program.run(steps.view()) == PN_DEVICE_LOST);
  api.queue_destroy(queue);
  api.program_destroy(program.handle());
  api.device_close(host.device());
  pn_device again = {};
  CHECK(api.device_open(0, &again, nullptr) == PN_OK);
  CHECK(api.memory_status(again, &status, nullptr) == PN_OK);
  api.device_close(again);
}
