// SPDX-License-Identifier: Apache-2.0
//
// Runs cases: each in a child process of its own, or in this one.
//
// Owns children, deadlines and what was their last word. Knows no case. The one idea: the child is
// this program again with a case's name, so whatever a plugin does (crash, exit, hang, print), it
// does it there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hal/check/case.h"

namespace pn::check {

// Runs it here.
Outcome run_here(const Case& c, const Setup& setup);

// The child's half: runs it and writes the outcome to the descriptor.
void run_for_parent(const Case& c, const Setup& setup, int fd);

constexpr int kChildFd = 3;  // where a child's outcome goes

// The parent's half. command: this program and the arguments that make it call run_for_parent with
// kChildFd.
Outcome run_child(const std::vector<std::string>& command, uint32_t deadline_ms);

}  // namespace pn::check
