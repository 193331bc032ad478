// SPDX-License-Identifier: Apache-2.0
//
// See options.h. Tables of name, member and kind of value: one for the plugin, one for a die.
#include "plugins/chaos/options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <variant>

namespace chaos {
namespace {

constexpr uint64_t kDiesMax = 256;

using Words = std::vector<std::pair<const char*, uint64_t>>;
using Take = bool (*)(const std::string& text, void* member);

struct Unit {
  const char* name;
  uint64_t factor;
};
constexpr Unit kUnits[] = {
    {"", 1},   {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40},
    {"ns", 1}, {"us", 1000},        {"ms", 1'000'000},   {"s", 1'000'000'000}};

bool number(const std::string& text, uint64_t* out) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  for (const Unit& unit : kUnits) {
    if (std::string(end) != unit.name) continue;
    if (value > UINT64_MAX / unit.factor) return false;
    *out = value * unit.factor;
    return true;
  }
  return false;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text + " ") {
    if (c != ' ' && c != ',') {
      part += c;
    } else if (!part.empty()) {
      parts.push_back(std::move(part));
      part.clear();
    }
  }
  return parts;
}

bool take_number(const std::string& text, void* member) {
  return number(text, static_cast<uint64_t*>(member));
}
bool take_text(const std::string& text, void* member) {
  *static_cast<std::string*>(member) = text;
  return true;
}
bool take_list(const std::string& text, void* member) {
  *static_cast<std::vector<std::string>*>(member) = split(text);
  return true;
}

bool take_word(const Words& words, const std::string& text, void* member) {
  for (const auto& [name, value] : words) {
    if (text != name) continue;
    *static_cast<uint64_t*>(member) = value;
    return true;
  }
  return false;
}
bool take_yes(const std::string& text, void* member) {
  return take_word({{"yes", 1}, {"no", 0}, {"true", 1}, {"false", 0}}, text, member);
}
bool take_group(const std::string& text, void* member) {
  return take_word({{"die", 0}, {"card", 1}, {"all", 2}}, text, member);
}
bool take_clock(const std::string& text, void* member) {
  return take_word({{"real", 0}, {"virtual", 1}}, text, member);
}
bool take_state(const std::string& text, void* member) {
  return take_word({{"ready", 0}, {"in_use", 1}, {"lost", 2}, {"absent", 3}}, text, member);
}
bool take_health(const std::string& text, void* member) {
  return take_word({{"ok", 0}, {"degraded", 1}, {"failing", 2}}, text, member);
}
bool take_quality(const std::string& text, void* member) {
  return take_word({{"unknown", 0}, {"estimate", 1}, {"exact", 2}}, text, member);
}
bool take_scope(const std::string& text, void* member) {
  return take_word({{"queue", 2}, {"device", 3}, {"reset_domain", 4}, {"plugin", 5}}, text, member);
}
bool take_recovery(const std::string& text, void* member) {
  return take_word({{"none", 0},
                    {"retry_later", 1},
                    {"reopen_device", 2},
                    {"reset_domain", 3},
                    {"restart_process", 4},
                    {"operator", 5}},
                   text, member);
}

// "9GiB", or "0:0 5s:9GiB 20s:500MiB".
bool take_moments(const std::string& text, void* member) {
  std::vector<Moment> moments;
  for (const std::string& part : split(text)) {
    const size_t colon = part.find(':');
    Moment moment;
    if (colon != std::string::npos && !number(part.substr(0, colon), &moment.at_ns)) return false;
    const size_t rest = colon == std::string::npos ? 0 : colon + 1;
    if (!number(part.substr(rest), &moment.bytes)) return false;
    if (!moments.empty() && moment.at_ns < moments.back().at_ns) return false;
    moments.push_back(moment);
  }
  *static_cast<std::vector<Moment>*>(member) = std::move(moments);
  return true;
}

// "queue_submit:37 memory_status:2"; without a number the first call.
bool take_traps(const std::string& text, void* member) {
  std::vector<Trap> traps;
  for (const std::string& part : split(text)) {
    const size_t colon = part.find(':');
    Trap trap{part.substr(0, colon), 1};
    if (colon != std::string::npos && !number(part.substr(colon + 1), &trap.call)) return false;
    traps.push_back(std::move(trap));
  }
  *static_cast<std::vector<Trap>*>(member) = std::move(traps);
  return true;
}

// "seeded", or ids: "17 4 99 2".
bool take_tokens(const std::string& text, void* member) {
  auto* options = static_cast<Options*>(member);
  options->draw = Draw::seen;
  options->ids.clear();
  if (text == "seeded") return true;
  for (const std::string& part : split(text)) {
    uint64_t id = 0;
    if (!number(part, &id) || id > INT32_MAX) return false;
    options->ids.push_back(static_cast<int32_t>(id));
  }
  options->draw = Draw::list;
  return !options->ids.empty();
}

template <class T>
struct Entry {
  const char* key;
  Take take;
  void* (*at)(T&);
  const char* wants;
};
#define CHAOS_AT(T, member) [](T& o) -> void* { return &o.member; }
#define CHAOS_DIE(member, take, wants) \
  { #member, take, CHAOS_AT(DieOptions, member), wants }
#define CHAOS_ALL(key, member, take, wants) \
  { key, take, CHAOS_AT(Options, member), wants }

constexpr const char* kNumber = "a number, with KiB, MiB, GiB, ns, us, ms or s";

const Entry<DieOptions> kDie[] = {
    CHAOS_DIE(name, take_text, "a text"),
    CHAOS_DIE(reason, take_text, "a text"),
    CHAOS_DIE(state, take_state, "ready, in_use, lost or absent"),
    CHAOS_DIE(bytes, take_number, kNumber),
    CHAOS_DIE(context_bytes, take_number, kNumber),
    CHAOS_DIE(program_bytes, take_number, kNumber),
    CHAOS_DIE(host_visible, take_yes, "yes or no"),
    CHAOS_DIE(health, take_health, "ok, degraded or failing"),
    CHAOS_DIE(health_reason, take_text, "a text"),
    CHAOS_DIE(external, take_moments, "bytes, or rising times with bytes: 0:0 5s:9GiB"),
    CHAOS_DIE(quality, take_quality, "unknown, estimate or exact"),
    CHAOS_DIE(says_free, take_number, kNumber),
    CHAOS_DIE(says_total, take_number, kNumber),
    CHAOS_DIE(slow_free_ns, take_number, kNumber),
    CHAOS_DIE(oom_at, take_number, kNumber),
    CHAOS_DIE(oom_count, take_number, kNumber),
    CHAOS_DIE(step_ns, take_number, kNumber),
    CHAOS_DIE(token_ns, take_number, kNumber),
    CHAOS_DIE(copy_ns, take_number, kNumber),
    CHAOS_DIE(jitter_ns, take_number, kNumber),
    CHAOS_DIE(late_every, take_number, kNumber),
    CHAOS_DIE(late_ns, take_number, kNumber),
    CHAOS_DIE(build_ns, take_number, kNumber),
    CHAOS_DIE(free_ns, take_number, kNumber),
    CHAOS_DIE(fail_step, take_number, kNumber),
    CHAOS_DIE(fail_op, take_number, kNumber),
    CHAOS_DIE(nan_step, take_number, kNumber),
    CHAOS_DIE(lose_step, take_number, kNumber),
    CHAOS_DIE(lose_ns, take_number, kNumber),
    CHAOS_DIE(lose_scope, take_scope, "queue, device, reset_domain or plugin"),
    CHAOS_DIE(lose_recovery, take_recovery,
              "none, retry_later, reopen_device, reset_domain, restart_process or operator"),
    CHAOS_DIE(settle_ns, take_number, kNumber),
    CHAOS_DIE(poison, take_yes, "yes or no"),
    CHAOS_DIE(full_every, take_number, kNumber),
    CHAOS_DIE(fail_build, take_number, kNumber),
    CHAOS_DIE(unsupported_op, take_number, kNumber),
    CHAOS_DIE(hang_step, take_number, kNumber),
    CHAOS_DIE(hang, take_traps, "function:call, as queue_submit:37"),
    CHAOS_DIE(fail_open, take_text, "a text"),
    CHAOS_DIE(self_check, take_text, "a text"),
    CHAOS_DIE(reset, take_text, "a text"),
};

const Entry<Options> kTopology[] = {
    CHAOS_ALL("cards", cards, take_number, "a number"),
    CHAOS_ALL("dies_per_card", dies_per_card, take_number, "a number"),
    CHAOS_ALL("links", links, take_group, "die, card or all"),
    CHAOS_ALL("resets", resets, take_group, "die, card or all"),
    CHAOS_ALL("peers", peers, take_group, "die (none), card or all"),
    CHAOS_ALL("pci", pci, take_yes, "yes or no"),
    CHAOS_ALL("clock", virtual_clock, take_clock, "real or virtual"),
    CHAOS_ALL("without", without, take_list, "names of interfaces: sampler graph"),
};
const Entry<Options> kScript[] = {
    CHAOS_ALL("tick_ns", tick_ns, take_number, kNumber),
    CHAOS_ALL("seed", seed, take_number, "a number"),
    CHAOS_ALL("by_hand", by_hand, take_yes, "yes or no"),
    CHAOS_ALL("token_min", token_min, take_number, "a number"),
    CHAOS_ALL("token_max", token_max, take_number, "a number"),
    {"tokens", take_tokens, [](Options& o) -> void* { return &o; }, "seeded, or ids: 17 4 2"},
};
#undef CHAOS_AT
#undef CHAOS_DIE
#undef CHAOS_ALL

enum class Found { no, taken, malformed };

template <class T, size_t N>
Found look(const Entry<T> (&entries)[N], const std::string& key, const std::string& value, T& into,
           std::string* why) {
  for (const Entry<T>& entry : entries) {
    if (key != entry.key) continue;
    if (entry.take(value, entry.at(into))) return Found::taken;
    *why = "option " + key + ": expected " + entry.wants + ", found '" + value + "'";
    return Found::malformed;
  }
  return Found::no;
}

// "die3.bytes" -> 3, "bytes". False when it is not of this form.
bool of_one_die(const std::string& key, uint64_t* die, std::string* rest) {
  const size_t dot = key.find('.');
  if (key.rfind("die", 0) != 0 || dot == std::string::npos) return false;
  if (!number(key.substr(3, dot - 3), die)) return false;
  *rest = key.substr(dot + 1);
  return true;
}

bool unknown(const std::string& key, std::string* why) {
  *why = "option " + key + " is unknown: plugins/chaos/README.md lists them";
  return false;
}

// Options of all dies or of one, and those of the script; false with *why.
bool apply(const std::string& key, const std::string& value, Options* options, std::string* why) {
  uint64_t die = 0;
  std::string rest;
  if (of_one_die(key, &die, &rest)) {
    if (die >= options->dies.size()) {
      *why = "option " + key + ": there are " + std::to_string(options->dies.size()) + " dies";
      return false;
    }
    const Found found = look(kDie, rest, value, options->dies[die], why);
    return found == Found::no ? unknown(key, why) : found == Found::taken;
  }
  const Found script = look(kScript, key, value, *options, why);
  if (script != Found::no) return script == Found::taken;
  for (DieOptions& each : options->dies) {
    const Found found = look(kDie, key, value, each, why);
    if (found != Found::taken) return found == Found::no ? unknown(key, why) : false;
  }
  return true;
}

}  // namespace

bool Options::lacks(const std::string& interface) const {
  return std::find(without.begin(), without.end(), interface) != without.end();
}

bool parse(const Pairs& pairs, Options* out, std::string* why) {
  Pairs rest, last;
  for (const auto& pair : pairs) {
    const Found found = look(kTopology, pair.first, pair.second, *out, why);
    if (found == Found::malformed) return false;
    uint64_t die = 0;
    std::string key;
    if (found == Found::no) (of_one_die(pair.first, &die, &key) ? last : rest).push_back(pair);
  }
  if (out->cards == 0 || out->dies_per_card == 0 || out->cards > kDiesMax ||
      out->dies_per_card > kDiesMax / out->cards) {
    *why = "options cards and dies_per_card: 1 to " + std::to_string(kDiesMax) + " dies in all";
    return false;
  }
  out->dies.resize(out->cards * out->dies_per_card);
  rest.insert(rest.end(), last.begin(), last.end());  // what is said of one die comes after
  for (const auto& [key, value] : rest) {
    if (!apply(key, value, out, why)) return false;
  }
  return true;
}

bool change(const std::string& key, const std::string& value, Options* options, std::string* why) {
  return apply(key, value, options, why);
}

}  // namespace chaos
