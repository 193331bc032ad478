// SPDX-License-Identifier: Apache-2.0
//
// See layout.h.
#include "hal/host/layout.h"

#include <cerrno>
#include <cstdlib>

namespace pn::hal {

namespace {

pn_error no_error() {
  pn_error e{};
  e.struct_size = sizeof(pn_error);
  return e;
}

[[gnu::cold]] tl::unexpected<Error> failed(const Plugin& plugin, const char* call, pn_status status,
                                           const pn_error& error) {
  return tl::unexpected<Error>(to_error(plugin.name() + ": " + call, status, error));
}

}  // namespace

Result<Layout> Layout::of(const std::shared_ptr<Plugin>& plugin, uint64_t target) {
  if (plugin->interface<pn_layout_api>() == nullptr) {
    return fail(Code::unsupported,
                plugin->name() + ": no pantheon.layout/1: weights go up as the file has them");
  }
  return Layout(plugin, target);
}

Result<std::vector<pn_layout_choice>> Layout::rank(const pn_weight& weight) const {
  const auto* api = plugin_->interface<pn_layout_api>();
  pn_error err = no_error();
  uint32_t count = 0;
  pn_status st = api->rank(&weight, target_, &count, nullptr, &err);
  if (st < 0) return failed(*plugin_, "layout.rank", st, err);
  pn_layout_choice blank{};
  blank.struct_size = sizeof blank;
  std::vector<pn_layout_choice> choices(count, blank);
  st = api->rank(&weight, target_, &count, choices.data(), &err);
  if (st != PN_OK) return failed(*plugin_, "layout.rank", st, err);
  if (choices.empty()) {
    return fail(Code::failed, plugin_->name() + ": layout.rank named no layout and no reason");
  }
  return choices;
}

Result<void> Layout::convert(const pn_weight& weight, const pn_layout_choice& choice,
                             const void* source, void* out, uint64_t first, uint64_t count) const {
  if (plugin_->abandoned()) {
    return fail(Code::device_lost,
                plugin_->name() + ": it is not called any more: restart pantheon");
  }
  pn_error err = no_error();
  pn_status st = plugin_->interface<pn_layout_api>()->convert(&weight, target_, choice.layout,
                                                              source, out, first, count, &err);
  if (st != PN_OK) return failed(*plugin_, "layout.convert", st, err);
  return {};
}

Result<void> Layout::decode(const pn_weight& weight, const pn_layout_choice& choice, const void* in,
                            float* out, uint64_t first, uint64_t count) const {
  pn_error err = no_error();
  pn_status st = plugin_->interface<pn_layout_api>()->decode(&weight, target_, choice.layout, in,
                                                             out, first, count, &err);
  if (st != PN_OK) return failed(*plugin_, "layout.decode", st, err);
  return {};
}

Result<std::vector<std::pair<std::string, uint64_t>>> Layout::targets() const {
  const auto* api = plugin_->interface<pn_layout_api>();
  pn_error err = no_error();
  uint32_t count = 0;
  pn_status st = api->targets(&count, nullptr, &err);
  if (st < 0) return failed(*plugin_, "layout.targets", st, err);
  std::vector<pn_pair> pairs(count);
  st = api->targets(&count, pairs.data(), &err);
  if (st != PN_OK) return failed(*plugin_, "layout.targets", st, err);
  std::vector<std::pair<std::string, uint64_t>> targets;
  for (const pn_pair& pair : pairs) {
    char* end = nullptr;
    errno = 0;
    uint64_t value = std::strtoull(pair.value, &end, 10);
    if (errno != 0 || end == pair.value || *end != 0) {
      return fail(Code::failed, plugin_->name() + ": layout.targets: " + pair.key +
                                    " is not a decimal number: " + pair.value);
    }
    targets.emplace_back(pair.key, value);
  }
  return targets;
}

}  // namespace pn::hal
