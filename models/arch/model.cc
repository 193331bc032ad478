// SPDX-License-Identifier: Apache-2.0
//
// Opens a model: finds its architecture, checks it, builds its plans.
//
// Owns the list of architectures. Knows no formula and no device. The one idea: load() runs the
// whole build once with the smallest options, so a file that loads can be planned.
#include <fmt/format.h>

#include "models/arch/plan.h"
#include "models/arch/registry.h"
#include "models/gguf/text.h"

namespace pn::arch {
namespace {

constexpr const Architecture* kAll[] = {&kLlama};

Result<void> check(const Model& model, const PlanOptions& options) {
  const HyperParams& params = model.params();
  auto wrong = [&](const char* what, const std::string& found) {
    return fail(Code::invalid, fmt::format("{}: {} {}", model.file().shards()[0].path, what, found),
                what);
  };
  if (options.lanes == 0) return wrong("lanes", "must be at least 1");
  if (options.page_tokens == 0 || (options.page_tokens & (options.page_tokens - 1)) != 0)
    return wrong("page_tokens",
                 fmt::format("is {}; a power of two is wanted", options.page_tokens));
  if (options.context > params.context)
    return wrong("context", fmt::format("of {} tokens is asked for; the model was trained for {}: "
                                        "ask for at most that",
                                        options.context, params.context));
  if (options.shapes.empty()) return wrong("shapes", "must name at least one bucket");
  uint32_t context = options.context == 0 ? params.context : options.context;
  for (const pn_shape& s : options.shapes)
    if (s.tokens == 0 || s.entries == 0 || s.entries > options.lanes || s.context > context)
      return wrong("shapes", fmt::format("name a bucket of {} tokens, {} entries, context {}; with "
                                         "{} lanes of {} tokens that cannot run",
                                         s.tokens, s.entries, s.context, options.lanes, context));
  return {};
}

}  // namespace

struct Registry {
  static Result<std::shared_ptr<const Model>> load(std::shared_ptr<const gguf::File> file) {
    PN_TRY(std::string name, file->text("general.architecture", ""));
    const std::string& path = file->shards()[0].path;
    if (name.empty())
      return fail(Code::invalid,
                  path +
                      ": the key 'general.architecture' is missing: this is no language model, or "
                      "it needs a current converter",
                  "general.architecture");
    for (const Architecture* a : kAll) {
      if (name != a->name) continue;
      std::shared_ptr<Model> model(new Model());
      model->file_ = std::move(file);
      PN_TRY(model->params_, a->read(*model->file_));
      model->build_ = a->build;
      PlanOptions least;
      least.lanes = 1;
      least.shapes = {{1, 1, 1, 1}};
      PN_TRY([[maybe_unused]] Plan plan, model->plan(least));
      return std::shared_ptr<const Model>(std::move(model));
    }
    std::string known;
    for (const std::string& k : known_architectures()) known += (known.empty() ? "" : ", ") + k;
    return fail(
        Code::unsupported,
        fmt::format("{}: 'general.architecture' is {}, which this build does not run (it runs "
                    "{}): take a model of these, or update pantheon",
                    path, gguf::quoted(name), known),
        "general.architecture");
  }
};

Result<std::shared_ptr<const Model>> Model::load(std::shared_ptr<const gguf::File> file) {
  return Registry::load(std::move(file));
}

Result<Plan> Model::plan(const PlanOptions& options) const {
  PN_TRY(check(*this, options));
  PlanOptions filled = options;
  if (filled.context == 0) filled.context = params_.context;
  return build_(*this, filled);
}

const std::vector<std::string>& known_architectures() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Architecture* a : kAll) out.emplace_back(a->name);
    return out;
  }();
  return names;
}

}  // namespace pn::arch
