// SPDX-License-Identifier: Apache-2.0
//
// pantheon.telemetry/1: a CPU is as healthy as the process that asks.
//
// Owns nothing. Readings come from what Linux offers without privileges: load and clock.
#include "backends/cpu/telemetry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "backends/cpu/device.h"
#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

pn_status health(pn_device device, uint32_t* out, char reason[128], pn_error* err) {
  if (find_die(device, err) == nullptr) return PN_INVALID;
  if (out == nullptr) return fail(err, PN_INVALID, "telemetry.health: health is NULL");
  *out = PN_HEALTH_OK;
  if (reason != nullptr) reason[0] = 0;
  return PN_OK;
}

double clock_mhz(int cpu) {
  char path[96];
  snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu);
  FILE* file = fopen(path, "re");
  if (file == nullptr) return NAN;
  double khz = NAN;
  if (fscanf(file, "%lf", &khz) != 1) khz = NAN;
  fclose(file);
  return khz / 1000;
}

pn_status readings(pn_device device, uint32_t* count, pn_reading* out, pn_error* err) {
  const Die* die = find_die(device, err);
  if (die == nullptr) return PN_INVALID;
  if (count == nullptr) return fail(err, PN_INVALID, "telemetry.readings: count is NULL");
  constexpr uint32_t kHave = 2;
  const uint32_t room = *count;
  *count = kHave;
  if (room == 0) return PN_OK;
  if (out == nullptr) return fail(err, PN_INVALID, "telemetry.readings: readings are NULL");
  double load[1] = {NAN};
  if (getloadavg(load, 1) != 1) load[0] = NAN;
  const double values[kHave] = {load[0], clock_mhz(die->node.cpus.front())};
  const char* names[kHave] = {"load_1min", "clock_mhz"};
  for (uint32_t i = 0; i < std::min(room, kHave); ++i) {
    pn_reading reading = {};
    reading.struct_size = sizeof(reading);
    snprintf(reading.name, sizeof(reading.name), "%s", names[i]);
    reading.value = values[i];
    pn_write(PN_AT(pn_reading, out, i), &reading, sizeof(reading));
  }
  return room < kHave ? PN_INCOMPLETE : PN_OK;
}

// Who else uses a CPU's memory is everybody: memory_status counts them in one number.
pn_status occupants(uint32_t index, uint32_t* count, pn_occupant*, pn_error* err) {
  if (index >= state()->specs.size()) return fail(err, PN_INVALID, "die %u", index);
  if (count == nullptr) return fail(err, PN_INVALID, "telemetry.occupants: count is NULL");
  *count = 0;
  return PN_OK;
}

}  // namespace

const pn_telemetry_api* telemetry_api() {
  static const pn_telemetry_api api = {sizeof(pn_telemetry_api), 0, health, readings, occupants};
  return &api;
}

}  // namespace pn::cpu
