// SPDX-License-Identifier: Apache-2.0
//
// Small models on disk and the fake die, for tests that load.
#pragma once

#include <memory>
#include <string>

#include "engine/plan/die.h"
#include "models/arch/plan.h"
#include "tests/support/random_model.h"

namespace pn::test {

// Written to a temporary folder that goes with the process; the same spec is written once.
std::string model_file(const ModelSpec& spec);
std::shared_ptr<const arch::Model> model_of(const ModelSpec& spec);
// The fake plugin, negotiated like any other; and its die. FakePlugin::reset() comes first.
std::shared_ptr<hal::Plugin> fake_hal_plugin();
std::shared_ptr<engine::Die> fake_die();

}  // namespace pn::test
