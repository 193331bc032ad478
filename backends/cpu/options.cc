// SPDX-License-Identifier: Apache-2.0
//
// Reads the pn_pair list of a profile into Options. See options.h.
#include "backends/cpu/options.h"

#include <cstdlib>
#include <cstring>

#include "backends/cpu/error.h"

namespace pn::cpu {
namespace {

constexpr const char* kKnown = "isa, threads, numerics, pin, dies, numa";

bool parse_number(const std::string& text, uint64_t* out) {
  if (text.empty() || text.size() > 19) return false;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  *out = value;
  return true;
}

bool parse_bool(const std::string& text, bool* out) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") return *out = true, true;
  if (text == "false" || text == "no" || text == "off" || text == "0") return *out = false, true;
  return false;
}

pn_status set_isa(const std::string& value, Options* out, pn_error* err) {
  if (value == "auto") {
    out->isa_auto = true;
    return PN_OK;
  }
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni}) {
    if (value != isa_name(isa)) continue;
    if (!isa_available(isa))
      return fail(
          err, PN_INVALID,
          "option isa: %s was asked for, this CPU or its kernel does not offer it; the best "
          "here is %s (isa: auto)",
          value.c_str(), isa_name(best_isa()));
    out->isa_auto = false;
    out->isa = isa;
    return PN_OK;
  }
  return fail(err, PN_INVALID,
              "option isa: '%s' is none of auto, baseline, avx2, avx512, avx512vnni",
              value.c_str());
}

// One item of dies: "N", "NxSIZE" or "SIZE" with a unit.
bool add_dies(const std::string& item, std::vector<uint64_t>* dies) {
  uint64_t count = 1, cap = 0;
  const size_t x = item.find('x');
  if (x != std::string::npos) {
    if (!parse_number(item.substr(0, x), &count) || !parse_bytes(item.substr(x + 1), &cap))
      return false;
  } else if (!parse_number(item, &count)) {
    count = 1;
    if (!parse_bytes(item, &cap)) return false;
  }
  if (count == 0 || count + dies->size() > kDiesMax) return false;
  dies->insert(dies->end(), count, cap);
  return true;
}

pn_status set_dies(const std::string& value, Options* out, pn_error* err) {
  out->dies.clear();
  size_t from = 0;
  while (from <= value.size()) {
    size_t to = value.find(',', from);
    if (to == std::string::npos) to = value.size();
    std::string item = value.substr(from, to - from);
    while (!item.empty() && item.front() == ' ') item.erase(0, 1);
    while (!item.empty() && item.back() == ' ') item.pop_back();
    if (!add_dies(item, &out->dies))
      return fail(err, PN_INVALID,
                  "option dies: '%s' is not a count (2), a size (512MiB), or both (2x512MiB), "
                  "separated by commas, %u dies at most",
                  value.c_str(), kDiesMax);
    from = to + 1;
  }
  return PN_OK;
}

pn_status set_option(const std::string& key, const std::string& value, Options* out,
                     pn_error* err) {
  if (key == "isa") return set_isa(value, out, err);
  if (key == "dies") return set_dies(value, out, err);
  if (key == "threads") {
    uint64_t n = 0;
    if (value == "auto") return PN_OK;
    if (!parse_number(value, &n) || n == 0 || n > kThreadsMax)
      return fail(err, PN_INVALID, "option threads: '%s' is not a number from 1 to %u, or auto",
                  value.c_str(), kThreadsMax);
    out->threads = static_cast<uint32_t>(n);
    return PN_OK;
  }
  if (key == "numerics") {
    if (value != "fast" && value != "reference")
      return fail(err, PN_INVALID, "option numerics: '%s' is neither fast nor reference",
                  value.c_str());
    out->numerics = value == "fast" ? Numerics::fast : Numerics::reference;
    return PN_OK;
  }
  if (key == "pin" || key == "numa") {
    if (!parse_bool(value, key == "pin" ? &out->pin : &out->numa))
      return fail(err, PN_INVALID, "option %s: '%s' is neither true nor false", key.c_str(),
                  value.c_str());
    return PN_OK;
  }
  return fail(err, PN_INVALID, "unknown option '%s' of the cpu plugin; known: %s", key.c_str(),
              kKnown);
}

}  // namespace

bool parse_bytes(const std::string& text, uint64_t* out) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  uint64_t value = 0;
  if (!parse_number(text.substr(0, digits), &value)) return false;
  const std::string unit = text.substr(digits);
  uint32_t shift = 0;
  if (unit == "KiB")
    shift = 10;
  else if (unit == "MiB")
    shift = 20;
  else if (unit == "GiB")
    shift = 30;
  else if (unit == "TiB")
    shift = 40;
  else if (!unit.empty() && unit != "B")
    return false;
  if (shift != 0 && value > (UINT64_MAX >> shift)) return false;
  *out = value << shift;
  return true;
}

pn_status parse_options(const pn_pair* pairs, uint32_t count, Options* out, pn_error* err) {
  if (count != 0 && pairs == nullptr) return fail(err, PN_INVALID, "config is NULL");
  for (uint32_t i = 0; i < count; ++i) {
    if (pairs[i].key == nullptr || pairs[i].value == nullptr)
      return fail(err, PN_INVALID, "option %u has no key or no value", i);
    const pn_status status = set_option(pairs[i].key, pairs[i].value, out, err);
    if (status != PN_OK) return status;
  }
  if (out->isa_auto) out->isa = best_isa();
  return PN_OK;
}

}  // namespace pn::cpu
