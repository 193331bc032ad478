// SPDX-License-Identifier: Apache-2.0
//
// pantheon.layout/1 as C++: which bytes a weight becomes, and the conversion.
//
// Owns nothing but a pointer to the plugin. Knows no file format. All calls are [pure]: any thread,
// no device; convert and decode allocate nothing on success.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hal/host/plugin.h"
#include "hal/host/result.h"

namespace pn::hal {

class Layout {
 public:
  // unsupported when the plugin has no pantheon.layout/1: then only layout 0, the source's bytes.
  // target: pn_device_info.layout_target, or one of targets().
  static Result<Layout> of(const std::shared_ptr<Plugin>& plugin, uint64_t target);

  // Best first, at least one.
  Result<std::vector<pn_layout_choice>> rank(const pn_weight& weight) const;
  // source: the whole tensor. out: the first byte of tile `first`.
  Result<void> convert(const pn_weight& weight, const pn_layout_choice& choice, const void* source,
                       void* out, uint64_t first, uint64_t count) const;
  // in: the first byte of tile `first`. out: F32, the source rows of those tiles.
  Result<void> decode(const pn_weight& weight, const pn_layout_choice& choice, const void* in,
                      float* out, uint64_t first, uint64_t count) const;
  // name, target: chips that can be converted for with no card present.
  Result<std::vector<std::pair<std::string, uint64_t>>> targets() const;

  uint64_t target() const { return target_; }

 private:
  Layout(std::shared_ptr<Plugin> plugin, uint64_t target)
      : plugin_(std::move(plugin)), target_(target) {}
  std::shared_ptr<Plugin> plugin_;
  uint64_t target_ = 0;
};

}  // namespace pn::hal
