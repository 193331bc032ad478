// SPDX-License-Identifier: Apache-2.0
//
// The search order, and flag over environment over profile over default, with origins.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

#include "engine/profile/profile.h"
#include "tests/support/paths.h"

namespace {

using pn::profile::Flags;
using pn::profile::load;
using pn::profile::Profile;

struct Home {
  pn::test::TempDir dir;
  std::map<std::string, std::string> vars;

  Home() {
    ::mkdir((dir.path() + "/pantheon").c_str(), 0700);
    vars["XDG_CONFIG_HOME"] = dir.path();
    vars["HOSTNAME"] = "odin";
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = dir.path() + "/pantheon/" + name;
    std::ofstream(path) << text;
    return path;
  }
  pn::profile::Environment env() const {
    return [this](const char* name) -> const char* {
      auto at = vars.find(name);
      return at == vars.end() ? nullptr : at->second.c_str();
    };
  }
};

std::string origin_of(const Profile& profile, const std::string& key) {
  for (const auto& line : pn::profile::show(profile)) {
    if (line.key == key) return line.value + " <- " + line.origin;
  }
  return "no such key";
}

std::string port_line(const std::string& port) {
  return "version: 1\nserver: { port: " + port + " }\n";
}

}  // namespace

TEST_CASE("without a file: defaults, and where it was looked for") {
  Home home;
  auto p = load({}, home.env());
  REQUIRE_MESSAGE(p, p.error().message);
  CHECK(p->path.empty());
  REQUIRE(p->looked.size() >= 4);
  CHECK(p->looked[0] == home.dir.path() + "/pantheon/odin.yaml");
  CHECK(p->looked[1] == home.dir.path() + "/pantheon/profile.yaml");
  CHECK(p->looked.back() == "/etc/pantheon/profile.yaml");
  CHECK(p->server.port == 8080);
  CHECK(origin_of(*p, "server.port") == "8080 <- default");
  CHECK(origin_of(*p, "reserve") == "1GiB <- default");
}

TEST_CASE("the host's own file comes before profile.yaml, a named one before both") {
  Home home;
  home.write("profile.yaml", port_line("1001"));
  CHECK(load({}, home.env())->server.port == 1001);
  home.write("odin.yaml", port_line("1002"));
  CHECK(load({}, home.env())->server.port == 1002);
  home.vars["PANTHEON_PROFILE"] = home.write("a.yaml", port_line("1003"));
  CHECK(load({}, home.env())->server.port == 1003);
  Flags flags;
  flags.profile = home.write("b.yaml", port_line("1004"));
  CHECK(load(flags, home.env())->server.port == 1004);
  flags.profile = "/nonexistent.yaml";
  auto absent = load(flags, home.env());
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == pn::Code::not_found);
  CHECK(absent.error().message.find("/nonexistent.yaml (--profile)") != std::string::npos);
}

TEST_CASE("flag over environment over profile over default, each with its origin") {
  Home home;
  const std::string file = home.write("profile.yaml", port_line("1001"));
  CHECK(origin_of(*load({}, home.env()), "server.port") == "1001 <- profile " + file + ":2");
  home.vars["PANTHEON_PORT"] = "1002";
  CHECK(origin_of(*load({}, home.env()), "server.port") == "1002 <- environment PANTHEON_PORT");
  Flags flags;
  flags.port = 1003;
  CHECK(origin_of(*load(flags, home.env()), "server.port") == "1003 <- flag --port");
  home.vars["PANTHEON_PORT"] = "80x";
  auto bad = load(flags, home.env());
  REQUIRE_FALSE(bad);
  CHECK(bad.error().param == "PANTHEON_PORT");
}

TEST_CASE("--backend-plugin replaces the set; named plugins keep their options") {
  Home home;
  home.write("profile.yaml",
             "version: 1\nplugins: { cpu: { options: { isa: sse2 } }, tt: {} }\n"
             "models: [{ file: /m.gguf, dies: ['tt:*'] }]\n");
  Flags flags;
  flags.backend_plugins = {"cpu", "/x/backend_new.so"};
  flags.threads = 3;
  auto p = load(flags, home.env());
  REQUIRE(p);
  REQUIRE(p->plugins.size() == 2);
  CHECK(p->plugins_from_flag);
  CHECK(p->plugins[0].required);
  CHECK(p->options_for({"cpu"}) == pn::profile::Options{{"isa", "sse2"}, {"threads", "3"}});
  // A path whose note says cpu gets cpu's options too.
  CHECK(p->options_for({"/x/backend_new.so", "cpu"})[0].second == "sse2");
  CHECK(p->options_for({"other"}) == pn::profile::Options{{"threads", "3"}});
  CHECK(origin_of(*p, "plugins.cpu") == "in use <- flag --backend-plugin");
  auto pins = pn::profile::check_pins(*p, {"cpu", "new"});
  REQUIRE_FALSE(pins);
  CHECK(pins.error().message.find("model 'm' is pinned to 'tt:*'") != std::string::npos);
  CHECK(pn::profile::check_pins(*p, {"tt_blackhole", "tt"}));
  flags.backend_plugins.clear();
  home.vars["PANTHEON_BACKEND_PLUGIN"] = "tt,cpu";
  CHECK(load(flags, home.env())->plugins[0].name == "tt");
}

TEST_CASE("--model replaces the models, --context is for all") {
  Home home;
  home.write("profile.yaml", "version: 1\nmodels: [{ file: /a.gguf, context: 7, slots: 9 }]\n");
  Flags flags;
  flags.context = 512;
  CHECK(load(flags, home.env())->models[0].context == 512);
  flags.models = {"dir/b.gguf", "c"};
  auto p = load(flags, home.env());
  REQUIRE(p);
  REQUIRE(p->models.size() == 2);
  CHECK(p->models[0].name == "b");
  CHECK(p->models[0].slots == 4);
  CHECK(origin_of(*p, "models[0].slots") == "4 <- default");
  CHECK(origin_of(*p, "models[1].name") == "c <- flag --model");
  CHECK(origin_of(*p, "models[1].context") == "512 <- flag --context");
  flags.models = {"x/b.gguf", "y/b.gguf"};
  CHECK_FALSE(load(flags, home.env()));
}

TEST_CASE("what a die may use: rules in order, the environment's reserve, --device-bytes") {
  Home home;
  constexpr uint64_t gib = uint64_t{1} << 30;
  home.write("profile.yaml",
             "version: 1\ndies: [{ match: 'a:0', bytes: 4GiB }, { match: 'a:*', reserve: 50% }]\n");
  auto p = load({}, home.env());
  REQUIRE(p);
  CHECK(p->budget("a:0", 16 * gib) == 4 * gib);
  CHECK(p->budget("a:0", 2 * gib) == gib);  // total - reserve is less than the cap
  CHECK(p->budget("a:1", 16 * gib) == 8 * gib);
  CHECK(p->budget("b:0", 16 * gib) == 15 * gib);
  CHECK(p->budget("b:0", gib / 2) == 0);
  home.vars["PN_DIE_RESERVE_BYTES"] = "2GiB";
  CHECK(load({}, home.env())->budget("a:1", 16 * gib) == 14 * gib);
  Flags flags;
  flags.device_bytes = pn::profile::Amount{gib, -1};
  p = load(flags, home.env());
  REQUIRE(p);
  CHECK(p->budget("a:0", 16 * gib) == gib);
  CHECK(p->budget("z:3", 16 * gib) == gib);
  CHECK(origin_of(*p, "dies[2].bytes") == "1GiB <- flag --device-bytes");
}
