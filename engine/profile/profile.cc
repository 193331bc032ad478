// SPDX-License-Identifier: Apache-2.0
//
// What a profile means once it is read: amounts, patterns, budgets, pins.
#include "engine/profile/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/profile/suggest.h"

namespace pn::profile {

namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"B", 1},
                           {"kB", 1e3},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0}};

}  // namespace

uint64_t Amount::of(uint64_t total) const {
  if (percent < 0) return bytes;
  return static_cast<uint64_t>(static_cast<double>(total) * percent / 100.0);
}

std::string Amount::text() const {
  if (percent >= 0) {
    std::string text = std::to_string(percent);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text + "%";
  }
  for (const Unit& unit : {kUnits[10], kUnits[9], kUnits[8], kUnits[7]}) {
    const auto size = static_cast<uint64_t>(unit.bytes);
    if (bytes >= size && bytes % size == 0) return std::to_string(bytes / size) + unit.name;
  }
  return std::to_string(bytes);
}

Result<Amount> parse_amount(const std::string& text) {
  const auto bad = [&] {
    return fail(Code::invalid,
                "expected a size such as 1GiB, 500MB, 1073741824 or 80%, found '" + text + "'");
  };
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, digits);
  size_t at = digits;
  while (at < text.size() && text[at] == ' ') ++at;
  const std::string suffix = text.substr(at);
  if (number.empty() || number.size() > 20 || number[0] == '.' || number.back() == '.' ||
      std::count(number.begin(), number.end(), '.') > 1) {
    return bad();
  }
  Amount amount;
  if (suffix == "%") {
    amount.percent = std::strtod(number.c_str(), nullptr);
    if (amount.percent > 100) return bad();
    return amount;
  }
  for (const Unit& unit : kUnits) {
    if (suffix != unit.name) continue;
    const double value = std::strtod(number.c_str(), nullptr) * unit.bytes;
    if (value >= 9.0e18) return bad();
    // Whole numbers stay exact beyond 2^53.
    const bool whole = number.find('.') == std::string::npos;
    amount.bytes =
        whole ? std::strtoull(number.c_str(), nullptr, 10) * static_cast<uint64_t>(unit.bytes)
              : static_cast<uint64_t>(std::llround(value));
    return amount;
  }
  return bad();
}

bool matches(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Options Profile::options_for(const std::vector<std::string>& names) const {
  Options options;
  for (const Plugin& plugin : configured) {
    if (std::find(names.begin(), names.end(), plugin.name) == names.end()) continue;
    options = plugin.options;
    break;
  }
  for (const auto& [key, value] : overrides) {
    const std::string& wanted = key;
    auto same = std::find_if(options.begin(), options.end(),
                             [&](const auto& option) { return option.first == wanted; });
    if (same == options.end()) {
      options.emplace_back(key, value);
    } else {
      same->second = value;
    }
  }
  return options;
}

bool Profile::isolated(const std::vector<std::string>& names) const {
  for (const Plugin& plugin : configured) {
    if (std::find(names.begin(), names.end(), plugin.name) != names.end()) return plugin.isolated;
  }
  return false;
}

const DieRule* Profile::rule_for(const std::string& die) const {
  for (const DieRule& rule : dies) {
    if (matches(rule.match, die)) return &rule;
  }
  return nullptr;
}

uint64_t Profile::budget(const std::string& die, uint64_t total) const {
  const DieRule* rule = rule_for(die);
  const Amount& kept = rule != nullptr && rule->reserve ? *rule->reserve : reserve;
  const uint64_t held_back = std::min(kept.of(total), total);
  const uint64_t left = total - held_back;
  return rule != nullptr && rule->bytes ? std::min(left, rule->bytes->of(total)) : left;
}

Result<void> check_pins(const Profile& profile, const std::vector<std::string>& names) {
  std::string problems;
  for (const Model& model : profile.models) {
    for (const std::string& die : model.dies) {
      const std::string plugin = die.substr(0, die.find(':'));
      const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return matches(plugin, name) || matches(die, name);
      });
      if (known) continue;
      if (!problems.empty()) problems += "\n";
      problems += "model '" + model.name + "' is pinned to '" + die + "', and plugin '" + plugin +
                  "' is not in use" + suggestion(plugin, names) + " Add --backend-plugin " +
                  plugin + ", or remove the pin";
    }
  }
  if (!problems.empty()) return fail(Code::invalid, problems, "dies");
  return {};
}

}  // namespace pn::profile
