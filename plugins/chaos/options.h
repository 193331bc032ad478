// SPDX-License-Identifier: Apache-2.0
//
// What the script says: every option of the plugin, parsed once.
//
// Owns the names, the units and the refusals. Knows no object of the plugin. The one idea: an
// option of a die stands alone for all dies, or behind "die<N>." for one of them; what is not
// understood is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chaos {

enum class Group : uint32_t { die, card, all };
enum class Draw : uint32_t { seen, list };

struct Moment {  // from this time after the entry on
  uint64_t at_ns = 0;
  uint64_t bytes = 0;
};

struct Trap {  // the call of this number to a function does not return
  std::string function;
  uint64_t call = 0;
};

struct DieOptions {
  // what it is
  std::string name = "chaos die (scripted)";
  std::string reason;
  uint64_t state = 0;  // PN_STATE_*
  uint64_t bytes = uint64_t{12} << 30;
  uint64_t context_bytes = 0;
  uint64_t program_bytes = 1 << 20;
  uint64_t host_visible = 1;
  uint64_t health = 0;  // PN_HEALTH_*
  std::string health_reason;
  // memory
  std::vector<Moment> external;
  uint64_t quality = 2;
  uint64_t says_free = UINT64_MAX;  // UINT64_MAX: the truth
  uint64_t says_total = UINT64_MAX;
  uint64_t slow_free_ns = 0;  // a destroyed buffer is reclaim_pending for so long
  uint64_t oom_at = 0;        // the buffer of this number is refused; 0 none
  uint64_t oom_count = 1;     // and this many in all
  // time
  uint64_t step_ns = 0;
  uint64_t token_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t jitter_ns = 0;
  uint64_t late_every = 0;  // each n-th submit takes late_ns more
  uint64_t late_ns = 0;
  uint64_t build_ns = 0;
  uint64_t free_ns = 0;  // buffer_destroy takes so long (real clock)
  // faults, by number of RUN on the die, from 1; 0 none
  uint64_t fail_step = 0;
  uint64_t fail_op = UINT64_MAX;  // named in the text of the failure
  uint64_t nan_step = 0;
  uint64_t lose_step = 0;
  uint64_t lose_ns = 0;  // after the entry, with or without work
  uint64_t lose_scope = 3;
  uint64_t lose_recovery = 2;
  uint64_t settle_ns = 0;   // from the loss until its queues say so
  uint64_t poison = 0;      // a lost die overwrites its memory
  uint64_t full_every = 0;  // each n-th submit finds the queue full
  uint64_t fail_build = 0;  // the program of this number
  uint64_t unsupported_op = UINT64_MAX;
  uint64_t hang_step = 0;  // the call that would complete it does not return
  std::vector<Trap> hang;
  std::string fail_open;
  std::string self_check;  // text of its failure
  std::string reset;       // "": works; else why it does not
};

struct Options {
  uint64_t cards = 1;
  uint64_t dies_per_card = 1;
  uint64_t links = 1;   // Group
  uint64_t resets = 1;  // Group
  uint64_t peers = 1;   // Group: die none
  uint64_t pci = 1;
  uint64_t virtual_clock = 0;
  uint64_t tick_ns = 1000;  // of the virtual clock, each queue_query
  uint64_t seed = 1;
  uint64_t by_hand = 0;
  Draw draw = Draw::seen;
  std::vector<int32_t> ids;  // with Draw::list
  uint64_t token_min = 0;
  uint64_t token_max = UINT64_MAX;
  std::vector<std::string> without;  // interfaces
  std::vector<DieOptions> dies;

  bool lacks(const std::string& interface) const;
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

// False: *why names the option and what it takes.
bool parse(const Pairs& pairs, Options* out, std::string* why);
// One more option, at run time; those of topology are refused.
bool change(const std::string& key, const std::string& value, Options* options, std::string* why);

}  // namespace chaos
