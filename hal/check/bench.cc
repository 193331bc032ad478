// SPDX-License-Identifier: Apache-2.0
//
// See bench.h. The reference may be the very file under test: then a copy of it is loaded, since a
// library is loaded once a process and with one set of options.
#include "hal/check/bench.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace pn::check {

namespace {

namespace fs = std::filesystem;

// Loads a private copy; the file is gone again once it is mapped.
Result<std::shared_ptr<hal::Plugin>> load_copy(const std::string& path, hal::LoadRequest request) {
  std::error_code ec;
  std::string folder = (fs::temp_directory_path(ec) / "pantheon-check-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return fail(Code::failed, folder + ": no folder for a copy of the reference plugin");
  const std::string copy = folder + "/reference.so";
  fs::copy_file(path, copy, ec);
  request.plugin = copy;
  auto loaded = hal::Plugin::load(request);
  fs::remove_all(folder, ec);
  return loaded;
}

Result<std::shared_ptr<hal::Plugin>> load_reference(const Setup& setup) {
  const std::string name = setup.reference.empty() ? PN_CHECK_REFERENCE : setup.reference;
  hal::Search search = setup.search;
  search.probe = false;  // it may be loaded here already, and this process is a test process
  auto found = hal::resolve(name, search);
  if (!found)
    return fail(Code::not_found,
                "the reference plugin is needed to compare with: " + found.error().message);
  hal::LoadRequest request;
  request.plugin = found->path;
  request.search = search;
  if (name == PN_CHECK_REFERENCE || (found->note && found->note->name == PN_CHECK_REFERENCE))
    request.options = {{"numerics", "reference"}, {"threads", "1"}};
  return load_copy(found->path, std::move(request));
}

}  // namespace

Result<std::shared_ptr<hal::Plugin>> Bench::plugin() {
  if (plugin_ != nullptr) return plugin_;
  hal::LoadRequest request;
  request.plugin = setup_.file;
  request.options = setup_.options;
  request.search = setup_.search;
  request.search.probe = false;  // this process is the test process
  request.isolated = setup_.isolated;
  PN_TRY(plugin_, hal::Plugin::load(request));
  return plugin_;
}

Result<Side*> Bench::subject() {
  if (subject_ == nullptr) {
    PN_TRY(auto loaded, plugin());
    PN_TRY(subject_, Side::open(loaded));
  }
  return subject_.get();
}

Result<Side*> Bench::reference() {
  if (reference_ == nullptr) {
    PN_TRY(auto loaded, load_reference(setup_));
    PN_TRY(reference_, Side::open(loaded));
  }
  return reference_.get();
}

bool Bench::close(std::span<const float> got, std::span<const float> want, double tolerance,
                  const std::string& where) {
  const Closeness c = compare(got, want);
  if (c.within(tolerance)) return true;
  fail(where + ": " + c.text() + fmt::format("; allowed {:.1e}", tolerance));
  return false;
}

void Bench::fail(const std::string& text) {
  if (++failed_ > 4) return;
  failures_ += (failures_.empty() ? "" : "\n") + text;
}

void Bench::note(const std::string& text) { notes_ += (notes_.empty() ? "" : "; ") + text; }

Outcome Bench::outcome() const {
  if (failed_ > 4) return {State::failed, fmt::format("{}\nand {} more", failures_, failed_ - 4)};
  if (failed_ > 0) return {State::failed, failures_};
  if (!unsupported_.empty()) return {State::unsupported, unsupported_};
  return {State::passed, notes_};
}

}  // namespace pn::check
