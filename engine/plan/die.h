// SPDX-License-Identifier: Apache-2.0
//
// An opened die that several model copies share.
//
// Owns the device and the lock that makes [control] calls one at a time. Knows no model.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "hal/host/hal.h"

namespace pn::engine {

struct Die {
  hal::Device device;
  std::string id;           // "cpu:0"
  std::mutex control;       // held around every [control] call on the device, see take_control()
  uint32_t generation = 0;  // of the isolated plugin's process that it was opened in
  uint64_t budget = 0;      // bytes that all copies on it may take together; 0: what it has
};

// The lock of a [control] call. Not owned when the plugin was abandoned: who is inside it may hold
// the lock for good, and there is nothing left to call.
inline std::unique_lock<std::mutex> take_control(Die& die) {
  std::unique_lock lock(die.control, std::try_to_lock);
  while (!lock.owns_lock() && !die.device.plugin().abandoned()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)lock.try_lock();
  }
  return lock;
}

}  // namespace pn::engine
