// SPDX-License-Identifier: Apache-2.0
//
// See results.h.
#include "hal/check/results.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

namespace pn::check {

std::string Conformance::text() const {
  if (!checked) return "not checked";
  if (failed.empty())
    return fmt::format("passed {}/{}{} on {}", passed, passed, quick ? " (quick)" : "", date);
  return fmt::format("failed: {}", fmt::join(failed, ", "));
}

std::string conformance_path(const std::string& cache_dir, const hal::Note& note) {
  if (cache_dir.empty() || note.build_id.empty()) return {};
  return cache_dir + "/check/" + note.build_id + "-" + hal::host_abi();
}

Conformance read_conformance(const std::string& cache_dir, const hal::Note& note) {
  Conformance c;
  const std::string path = conformance_path(cache_dir, note);
  if (path.empty()) return c;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals), value = line.substr(equals + 1);
    const auto number = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "passed") c.passed = static_cast<uint32_t>(number), c.checked = true;
    if (key == "unsupported") c.unsupported = static_cast<uint32_t>(number);
    if (key == "failed") c.failed.push_back(value);
    if (key == "date") c.date = value;
    if (key == "seed") c.seed = number;
    if (key == "quick") c.quick = value == "1";
  }
  return c;
}

bool write_conformance(const std::string& cache_dir, const hal::Note& note, const Conformance& c) {
  const std::string path = conformance_path(cache_dir, note);
  if (path.empty()) return false;
  ::mkdir((cache_dir + "/check").c_str(), 0700);
  const std::string fresh = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(fresh);
    out << "passed=" << c.passed << "\nunsupported=" << c.unsupported << "\ndate=" << c.date
        << "\nseed=" << c.seed << "\nquick=" << (c.quick ? 1 : 0) << "\n";
    for (const std::string& name : c.failed) out << "failed=" << name << "\n";
    if (!out.flush()) return false;
  }
  if (::rename(fresh.c_str(), path.c_str()) == 0) return true;
  ::unlink(fresh.c_str());
  return false;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace pn::check
