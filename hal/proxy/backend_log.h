// SPDX-License-Identifier: Apache-2.0
//
// How the plugin's log lines travel: on the backend host's stderr, marked.
#pragma once

namespace pn::proxy {

inline constexpr char kLogMark = '\x01';  // then one digit, the level, then the text

}  // namespace pn::proxy
