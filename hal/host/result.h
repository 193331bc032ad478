// SPDX-License-Identifier: Apache-2.0
//
// Errors above the ABI: one value type, one expected, one early return.
//
// Owns pn::Error, pn::Result and PN_TRY. Knows no layer above it. An Error says what was asked,
// what was found and what to do; `code` is who can fix it, which the server turns into a status and
// the command line into an exit code.
#pragma once

#include <cstdint>
#include <string>

// tl::expected 1.0 may be ignored in silence. Declared first with the attribute, it may not:
// g++ and clang keep it for the definition (tests/negative).
namespace tl {
template <class T, class E>
class [[nodiscard]] expected;
}

#include <tl/expected.hpp>
#include <utility>

namespace pn {

enum class Code {
  invalid,        // the caller's input: a bad file, argument, profile or request
  not_found,      // a name or path that does not exist
  unsupported,    // understood, and cannot be done by this build, plugin or model
  out_of_memory,  // nothing changed; a smaller request may work
  busy,           // works later without a change: queue full, still loading, port taken
  device_lost,    // sticky until the device is reset or reopened
  cancelled,      // the caller asked for the end
  failed,         // an operating-system call, a driver or a plugin failed
};

struct [[nodiscard]] Error {
  Code code = Code::failed;
  std::string message;
  std::string param;  // the field, key, tensor or option at fault; empty when none
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Code code, std::string message, std::string param = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(param)});
}

}  // namespace pn

// PN_TRY(auto value, expression) binds the value or returns the error from the enclosing function;
// PN_TRY(expression) does the same for a Result<void>.
#define PN_TRY_CAT2(a, b) a##b
#define PN_TRY_CAT(a, b) PN_TRY_CAT2(a, b)
#define PN_TRY_BIND(name, decl, ...)                              \
  auto name = (__VA_ARGS__);                                      \
  if (!name) return tl::make_unexpected(std::move(name).error()); \
  decl = *std::move(name)
#define PN_TRY_VOID(name, expr)                                     \
  do {                                                              \
    auto name = (expr);                                             \
    if (!name) return tl::make_unexpected(std::move(name).error()); \
  } while (0)
#define PN_TRY_1(expr) PN_TRY_VOID(PN_TRY_CAT(pn_try_, __LINE__), expr)
#define PN_TRY_N(decl, ...) PN_TRY_BIND(PN_TRY_CAT(pn_try_, __LINE__), decl, __VA_ARGS__)
#define PN_TRY_PICK(a1, a2, a3, a4, a5, a6, a7, a8, name, ...) name
#define PN_TRY(...)                                                                              \
  PN_TRY_PICK(__VA_ARGS__, PN_TRY_N, PN_TRY_N, PN_TRY_N, PN_TRY_N, PN_TRY_N, PN_TRY_N, PN_TRY_N, \
              PN_TRY_1, 0)                                                                       \
  (__VA_ARGS__)
