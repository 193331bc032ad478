// SPDX-License-Identifier: Apache-2.0
//
// Errors on their way out of the plugin, and the fence that keeps C++ exceptions inside it.
//
// Owns how a pn_error is filled. The one idea: every refusal is one line that says what was asked,
// what was found and what would work, and names its scope and recovery by its code.
#pragma once

#include <pantheon/core.h>

#include <new>

namespace pn::cpu {

// Fills err (when given) and returns code, so that a refusal is one return statement.
__attribute__((format(printf, 3, 4))) pn_status fail(pn_error* err, pn_status code,
                                                     const char* format, ...);

// Runs the body of an ABI function; nothing that C++ throws gets past it.
template <typename Body>
pn_status guarded(pn_error* err, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(err, PN_OUT_OF_MEMORY, "the host has no memory left for the plugin's own records");
  } catch (...) {
    return fail(err, PN_FAILED, "an unexpected C++ exception inside the cpu plugin");
  }
}

}  // namespace pn::cpu
