// SPDX-License-Identifier: Apache-2.0
//
// Whatever a plugin does to its process (crash, exit, hang, kill -9), the server hears DEVICE_LOST
// with the reason, and the next process is one call away.
#include <signal.h>

#include "tests/support/isolated.h"

using namespace pn;
using namespace pn::test;

namespace {

const char* const kFragile = "tests/fixtures/fragile.so";

std::shared_ptr<hal::Plugin> fragile(const TempDir& folder, const char* deed, const char* at = "1",
                                     uint32_t deadline_ms = 0) {
  hal::LoadRequest request = isolated_request(folder, kFragile, {{"deed", deed}, {"at", at}});
  request.deadline_ms = deadline_ms;
  return load(request);
}

void check_lost(const pn_error& error, const char* words) {
  CHECK(error.code == PN_DEVICE_LOST);
  CHECK(error.scope == PN_SCOPE_PLUGIN);
  CHECK(error.recovery == PN_RECOVER_RESTART_PROCESS);
  CHECK_MESSAGE(std::string(error.message).find(words) != std::string::npos, error.message);
}

bool process_is_there(int pid) { return ::kill(pid, 0) == 0; }

}  // namespace

TEST_CASE("isolated: a submit that ends the process is a lost die with the reason") {
  TempDir folder;
  const std::pair<const char*, const char*> deeds[] = {
      {"crash_in_submit", "SIG"}, {"exit_in_submit", "exit(7)"}, {"abort_in_submit", "SIGABRT"}};
  for (const auto& each : deeds) {
    const char *deed = each.first, *words = each.second;
    CAPTURE(std::string(deed));
    const auto plugin = fragile(folder, deed, "2");
    RowRun run(plugin);
    run.check_row();
    REQUIRE(run.submit());
    const pn_error error = run.wait_lost();
    check_lost(error, words);
    if (std::string(deed) == "abort_in_submit") check_lost(error, "the last thing it says");
    CHECK_FALSE(plugin->isolation()->alive());
    auto again = run.submit();
    REQUIRE_FALSE(again);
    CHECK(again.error().code == Code::device_lost);
    CHECK(run.device.memory_status().error().code == Code::device_lost);
    CHECK(run.device.create_buffer(0, 4096).error().code == Code::device_lost);
  }
}

TEST_CASE("isolated: killed from outside while idle") {
  TempDir folder;
  const auto plugin = fragile(folder, "none");
  RowRun run(plugin);
  run.check_row();
  ::kill(plugin->isolation()->pid(), SIGKILL);
  check_lost(run.wait_lost(), "SIGKILL");
  CHECK(run.device.memory_status().error().code == Code::device_lost);
}

TEST_CASE("isolated: the next process serves, what the last one gave stays lost") {
  TempDir folder;
  const auto plugin = fragile(folder, "exit_in_submit", "3");
  RowRun first(plugin);
  first.check_row();
  first.check_row();
  REQUIRE(first.submit());
  first.wait_lost();
  REQUIRE(plugin->isolation()->restart(1));
  CHECK(plugin->isolation()->generation() == 2);
  REQUIRE(plugin->isolation()->restart(1));  // done already
  CHECK(plugin->isolation()->generation() == 2);
  RowRun second(plugin);
  second.check_row();
  CHECK(first.queue.query()->state == PN_QUEUE_LOST);
  CHECK(first.device.create_buffer(0, 4096).error().code == Code::device_lost);
  CHECK(first.device.memory_status().error().code == Code::device_lost);
  CHECK(first.program.status().error().code == Code::device_lost);
  first.program = {};  // says nothing to the process that knows nothing of it
  first.results = {};
  second.check_row();
}

TEST_CASE("isolated: three restarts a minute, and the fourth is refused with the reason") {
  TempDir folder;
  const auto plugin = fragile(folder, "none");
  for (uint32_t i = 1; i <= 3; ++i) {
    plugin->isolation()->kill("was ended by the test");
    REQUIRE(plugin->isolation()->restart(i));
  }
  plugin->isolation()->kill("was ended by the test");
  auto refused = plugin->isolation()->restart(4);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::device_lost);
  CHECK(refused.error().message.find("was ended by the test") != std::string::npos);
}

TEST_CASE("isolated: a call that never returns, a call that exits") {
  TempDir folder;
  for (const char* deed : {"hang_in_create", "exit_in_create"}) {
    CAPTURE(std::string(deed));
    const auto plugin = fragile(folder, deed, "1", 1500);
    auto device = hal::Device::open(plugin, 0);
    REQUIRE(device);
    auto buffer = device->create_buffer(0, 4096);
    REQUIRE_FALSE(buffer);
    CHECK(buffer.error().code == Code::device_lost);
    const char* words = deed[0] == 'h' ? "buffer_create" : "exit(0)";
    CHECK_MESSAGE(buffer.error().message.find(words) != std::string::npos, buffer.error().message);
    const int pid = plugin->isolation()->pid();
    for (int i = 0; i < 1000 && process_is_there(pid); ++i) ::usleep(10'000);
    CHECK_FALSE(process_is_there(pid));
  }
}

TEST_CASE("isolated: a submit or a poll that never returns ends the process") {
  TempDir folder;
  for (const char* deed : {"hang_in_submit", "hang_in_poll"}) {
    CAPTURE(std::string(deed));
    RowRun run(fragile(folder, deed, "1", 1500));
    REQUIRE(run.submit());
    check_lost(run.wait_lost(), "for 1500 ms");
  }
}

TEST_CASE("isolated: a crash in the entry is an error of the load") {
  TempDir folder;
  auto plugin = hal::Plugin::load(isolated_request(folder, kFragile, {{"deed", "crash_in_entry"}}));
  REQUIRE_FALSE(plugin);
  CHECK_MESSAGE(plugin.error().message.find("SIG") != std::string::npos, plugin.error().message);
}

TEST_CASE("isolated: a refused submit fails its queue, after what was accepted before") {
  TempDir folder;
  const auto plugin = fragile(folder, "refuse_submit", "3");
  RowRun run(plugin);
  run.check_row();
  for (int i = 0; i < 4; ++i) {
    auto sent = run.submit();
    if (!sent) break;  // the host was faster
  }
  auto ended = run.queue.wait(run.value, kLongNs);
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message.find("refused as told") != std::string::npos);
  CHECK(run.queue.query()->state == PN_QUEUE_FAILED);
  CHECK(run.queue.query()->completed == 2);
  CHECK(run.queue.failure().scope == PN_SCOPE_QUEUE);
  CHECK(plugin->isolation()->alive());
  auto again = run.submit();
  REQUIRE_FALSE(again);
  CHECK(again.error().code == Code::invalid);
}
