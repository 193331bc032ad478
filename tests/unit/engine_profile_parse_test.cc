// SPDX-License-Identifier: Apache-2.0
//
// The profile's text: each key acts, each mistake is a line that names it.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "engine/profile/profile.h"
#include "tests/support/paths.h"

namespace {

using pn::profile::parse;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string problem(const std::string& text) {
  auto profile = parse(text, "/etc/p.yaml");
  return profile ? "" : profile.error().message;
}

const char* kFull = R"(version: 1
plugin_dirs: [/opt/a, b]
plugins:
  cpu: { options: { isa: auto, threads: 2 } }
  tt:  { required: true, isolation: none, options: { allow_card: true } }
  null:
dies:
  - { match: "tt:*", reserve: 2GiB }
  - { match: "cpu:0", bytes: 12GiB, reserve: 10% }
models:
  - name: minicpm5
    file: /srv/MiniCPM5.gguf
    aliases: [default, small]
    copies: 1
    dies: ["tt:*"]
    context: 4096
    slots: 8
    lossy: bounded
    ttl: never
  - file: demo.gguf
server: { host: 0.0.0.0, port: 9000 }
fallback: never
)";

}  // namespace

TEST_CASE("every key of the format is read") {
  auto p = parse(kFull, "/etc/pantheon/p.yaml");
  REQUIRE_MESSAGE(p, p.error().message);
  CHECK(p->plugin_dirs == std::vector<std::string>{"/opt/a", "/etc/pantheon/b"});
  REQUIRE(p->plugins.size() == 3);
  CHECK(p->plugins[0].name == "cpu");
  CHECK(p->plugins[0].options == pn::profile::Options{{"isa", "auto"}, {"threads", "2"}});
  CHECK_FALSE(p->plugins[0].required);
  CHECK(p->plugins[1].required);
  CHECK(p->plugins[1].options[0].second == "true");
  REQUIRE(p->dies.size() == 2);
  CHECK(p->dies[1].bytes->bytes == 12ull << 30);
  CHECK(p->dies[1].reserve->percent == 10.0);
  REQUIRE(p->models.size() == 2);
  const pn::profile::Model& m = p->models[0];
  CHECK(m.name == "minicpm5");
  CHECK(m.aliases == std::vector<std::string>{"default", "small"});
  CHECK(m.dies == std::vector<std::string>{"tt:*"});
  CHECK(m.context == 4096);
  CHECK(m.slots == 8);
  CHECK(m.lossy == pn::profile::Lossy::bounded);
  CHECK(p->models[1].file == "/etc/pantheon/demo.gguf");  // beside the profile
  CHECK(p->models[1].name == "demo");
  CHECK(p->models[1].lossy == pn::profile::Lossy::none);
  CHECK(p->server.host == "0.0.0.0");
  CHECK(p->server.port == 9000);
}

TEST_CASE("the example that is installed is valid") {
  const std::string path = pn::test::source_path("engine/profile/example.yaml");
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  REQUIRE_FALSE(text.empty());
  auto p = parse(text, path);
  CHECK_MESSAGE(p, p.error().message);
}

TEST_CASE("a mistake is named with file, line, column, and what was meant") {
  CHECK(problem("version: 1\nmodles: []\n") ==
        "/etc/p.yaml:2:1: unknown key 'modles'; did you mean 'models'?");
  CHECK(has(problem("version: 1\nserver: { prot: 1 }\n"),
            "/etc/p.yaml:2:11: unknown key 'server.prot'; did you mean 'port'?"));
  CHECK(has(problem("version: 1\nmodels:\n  - file: a\n    contxt: 5\n"),
            "/etc/p.yaml:4:5: unknown key 'models[0].contxt'; did you mean 'context'?"));
  CHECK(has(problem("version: 1\nplugins: { cpu: { option: {} } }\n"), "did you mean 'options'?"));
  CHECK(has(problem("version: 1\nzzz: 1\n"), "known are version, plugin_dirs"));
  CHECK(has(problem("version: 1\nserver: { port: 70000 }\n"), "from 0 to 65535, found '70000'"));
  CHECK(has(problem("version: 1\nserver: { port: -1 }\n"), "found '-1'"));
  CHECK(has(problem("version: 1\nserver: { port: [1] }\n"), "a list or map"));
  CHECK(has(problem("version: 1\nplugins: { cpu: { required: yes } }\n"), "true or false"));
  CHECK(has(problem("version: 1\nplugins: [cpu]\n"), "one entry a plugin"));
  CHECK(has(problem("version: 1\nplugins: { cpu: { options: { a: [1] } } }\n"), "expected text"));
  CHECK(has(problem("version: 1\ndies: [{ match: cpu }]\n"), "PLUGIN:INDEX"));
  CHECK(has(problem("version: 1\ndies: [{ bytes: 1GiB }]\n"), "'match' is missing"));
  CHECK(has(problem("version: 1\ndies: [{ match: 'a:0', bytes: 1G }]\n"), "found '1G'"));
  CHECK(has(problem("version: 1\nmodels: [{ name: x }]\n"), "'file' is missing"));
  CHECK(has(problem("version: 1\nmodels: [{ file: x, lossy: bound }]\n"), "mean 'bounded'"));
  CHECK(has(problem("version: 1\nmodels: { file: x }\n"), "expected a list"));
  CHECK(has(problem("version: 1\nversion: 1\n"), "given twice"));
  CHECK(has(problem("version: 2\n"), "reads version 1, found '2'"));
  CHECK(has(problem("models: []\n"), "'version: 1' is missing"));
  CHECK(has(problem("hello\n"), "expected a map"));
  CHECK(has(problem(""), "expected a map"));
  CHECK(has(problem("version: 1\n  bad: [\n"), "/etc/p.yaml:2:"));
  CHECK(has(problem("version: 1\n  bad: [\n"), "not YAML"));
  CHECK(has(problem("version: 1\nmodels: [{file: a, name: x}, {file: b, aliases: [x]}]\n"),
            "the name 'x' is taken by model 'x'"));
}

TEST_CASE("all problems are listed, in order") {
  const std::string all = problem("version: 1\nfoo: 1\nserver: { port: x }\nbar: 2\n");
  CHECK(all.find(":2:1:") < all.find(":3:17:"));
  CHECK(all.find(":3:17:") < all.find(":4:1:"));
  CHECK(has(all, "\n"));
}

TEST_CASE("what a later version will do is refused by name, never ignored") {
  for (std::string later : {"models: [{ file: a, copies: 2 }]", "models: [{ file: a, ttl: 10m }]",
                            "models: [{ file: a, dies: ['cpu:0', 'cpu:1'] }]",
                            "server: { keys: /etc/pantheon/keys }", "fallback: cpu"}) {
    CAPTURE(later);
    CHECK(has(problem("version: 1\n" + later + "\n"), "is not available in this version: "));
  }
}

TEST_CASE("isolation: of a plugin, and for every name that it answers to") {
  CHECK(has(problem("version: 1\nplugins: { cpu: { isolation: proces } }\n"), "none or process"));
  auto p = pn::profile::parse("version: 1\nplugins: { cpu: { isolation: process }, k: {} }\n", "f");
  REQUIRE(p);
  CHECK(p->plugins[0].isolated);
  CHECK_FALSE(p->plugins[1].isolated);
  CHECK(p->isolated({"processor", "cpu"}));
  CHECK_FALSE(p->isolated({"k", "kk"}));
  CHECK_FALSE(p->isolated({"other"}));
}

TEST_CASE("sizes") {
  using pn::profile::parse_amount;
  CHECK(parse_amount("1GiB")->bytes == 1ull << 30);
  CHECK(parse_amount("12 GiB")->bytes == 12ull << 30);
  CHECK(parse_amount("500MB")->bytes == 500000000);
  CHECK(parse_amount("1.5GiB")->bytes == 3ull << 29);
  CHECK(parse_amount("9007199254740993")->bytes == 9007199254740993ull);  // past 2^53
  CHECK(parse_amount("0")->bytes == 0);
  CHECK(parse_amount("80%")->of(1000) == 800);
  CHECK(parse_amount("12.5%")->text() == "12.5%");
  CHECK(parse_amount("12GiB")->text() == "12GiB");
  CHECK(parse_amount("1000")->text() == "1000");
  for (std::string bad : {"", "GiB", "-1", "1G", "1gib", "101%", "1e9", "1..5GiB", ".5GiB", "1 2",
                          "0x10", "99999999TiB", "1.GiB", "123456789012345678901"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_amount(bad));
  }
}

TEST_CASE("patterns") {
  using pn::profile::matches;
  CHECK(matches("tt:*", "tt:12"));
  CHECK(matches("*", "cpu:0"));
  CHECK(matches("c?u:0", "cpu:0"));
  CHECK(matches("*:0", "cpu:0"));
  CHECK(matches("a*b*c", "a1b2b3c"));
  CHECK_FALSE(matches("tt:*", "cpu:0"));
  CHECK_FALSE(matches("cpu:0", "cpu:01"));
  CHECK_FALSE(matches("", "x"));
  CHECK_FALSE(matches("a*b", "acbd"));
}
