// SPDX-License-Identifier: Apache-2.0
//
// The scripted plugin inside the test binary, loaded again and again with other options.
//
// Owns nothing: a Plugin given here must be gone before the next one is asked for, since the C
// table has no context.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "hal/host/hal.h"
#include "plugins/chaos/control.h"

namespace pn::test {

inline std::shared_ptr<hal::Plugin> chaos_plugin(const hal::Options& options) {
  hal::Note note;
  note.name = "chaos";
  auto plugin = hal::Plugin::from_entry(pantheon_plugin_entry_1, note, options);
  REQUIRE_MESSAGE(plugin.has_value(), plugin.error().message);
  return *plugin;
}

inline const chaos_control& chaos_hand(const hal::Plugin& plugin) {
  const auto* table = static_cast<const chaos_control*>(plugin.raw_interface(CHAOS_CONTROL));
  REQUIRE(table != nullptr);
  return *table;
}

inline chaos_counts chaos_counts_of(const chaos_control& hand) {
  chaos_counts counts{};
  hand.counts(&counts);
  return counts;
}

inline std::vector<chaos_event> chaos_events_of(const chaos_control& hand) {
  uint32_t count = 0;
  hand.events(&count, nullptr);
  std::vector<chaos_event> events(count);
  hand.events(&count, events.data());
  return events;
}

}  // namespace pn::test
