// SPDX-License-Identifier: Apache-2.0
//
// YAML text -> Profile. Every key of the format is in a table here; a key that is in none of them,
// twice in one place, or of the wrong kind is a problem with its line. All problems are collected,
// so that one run of `profile check` shows them all.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <set>

#include "engine/profile/profile.h"
#include "engine/profile/suggest.h"

namespace pn::profile {

namespace {

using YAML::Node;

// One YAML document while it is read.
class Reader {
 public:
  Reader(std::string file, Profile* out) : file_(std::move(file)), out_(out) {}

  void read_all(const Node& root);
  const std::vector<std::string>& problems() const { return problems_; }
  static std::string place(const std::string& file, const YAML::Mark& mark) {
    return file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  }

 private:
  using Handler = std::function<void(const Node& value, const std::string& key)>;
  struct Key {
    const char* name;
    Handler handle;
  };

  void problem(const Node& at, const std::string& text) {
    problems_.push_back(place(file_, at.Mark()) + ": " + text);
  }
  void origin(const Node& value, const std::string& key) {
    out_->origins[key] = "profile " + file_ + ":" + std::to_string(value.Mark().line + 1);
  }
  // What the format has, and this version cannot do: never ignored.
  void not_yet(const Node& at, const std::string& what, const std::string& instead) {
    problem(at, what + " is not available in this version: " + instead);
  }

  void each(const Node& map, const std::string& path, const std::vector<Key>& keys);
  bool list(const Node& value, const std::string& key);
  bool text(const Node& value, const std::string& key, std::string* out);
  bool boolean(const Node& value, const std::string& key, bool* out);
  bool number(const Node& value, const std::string& key, std::pair<uint64_t, uint64_t> range,
              uint64_t* out);
  bool amount(const Node& value, const std::string& key, std::optional<Amount>* out);
  bool texts(const Node& value, const std::string& key, std::vector<std::string>* out);
  std::string beside_profile(const std::string& path) const;

  void version(const Node& value, const std::string& key);
  void plugin_dirs(const Node& value, const std::string& key);
  void plugins(const Node& value, const std::string& key);
  void plugin(const std::string& name, const Node& value, const std::string& key);
  void dies(const Node& value, const std::string& key);
  void die(const Node& value, const std::string& key);
  void models(const Node& value, const std::string& key);
  void model(const Node& value, const std::string& key);
  void model_dies(const Node& value, const std::string& key, Model* model);
  void model_names(const Node& at, const Model& model);
  void server(const Node& value, const std::string& key);
  void fallback(const Node& value, const std::string& key);

  std::string file_;
  Profile* out_;
  std::vector<std::string> problems_;
  std::map<std::string, std::string> names_;  // of models and aliases -> the model they are of
};

void Reader::read_all(const Node& root) {
  if (!root.IsMap()) {
    problem(root, "expected a map with 'version: 1' in it, found something else");
    return;
  }
  auto bind = [this](void (Reader::*f)(const Node&, const std::string&)) {
    return [this, f](const Node& value, const std::string& key) { (this->*f)(value, key); };
  };
  each(root, "",
       {{"version", bind(&Reader::version)},
        {"plugin_dirs", bind(&Reader::plugin_dirs)},
        {"plugins", bind(&Reader::plugins)},
        {"dies", bind(&Reader::dies)},
        {"models", bind(&Reader::models)},
        {"server", bind(&Reader::server)},
        {"require_all",
         [this](const Node& v, const std::string& k) { boolean(v, k, &out_->require_all); }},
        {"fallback", bind(&Reader::fallback)}});
  if (!root["version"]) problem(root, "'version: 1' is missing: it says which format this is");
}

void Reader::each(const Node& map, const std::string& path, const std::vector<Key>& keys) {
  if (map.IsNull()) return;
  if (!map.IsMap()) {
    problem(map, (path.empty() ? "the profile" : path) + ": expected a map of keys");
    return;
  }
  std::vector<std::string> known;
  known.reserve(keys.size());
  for (const Key& key : keys) known.emplace_back(key.name);
  std::set<std::string> seen;
  for (const auto& item : map) {
    if (!item.first.IsScalar()) {
      problem(item.first, "expected a key, found a list or map");
      continue;
    }
    const std::string name = item.first.Scalar();
    const std::string full = path.empty() ? name : path + "." + name;
    auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return name == k.name; });
    if (key == keys.end()) {
      problem(item.first, "unknown key '" + full + "'" + suggestion(name, known));
    } else if (!seen.insert(name).second) {
      problem(item.first, "key '" + full + "' is given twice");
    } else {
      key->handle(item.second, full);
    }
  }
}

// ---- kinds of values ----------------------------------------------------------------------------

bool Reader::list(const Node& value, const std::string& key) {
  if (value.IsNull()) return false;
  if (value.IsSequence()) return true;
  problem(value, key + ": expected a list");
  return false;
}

bool Reader::text(const Node& value, const std::string& key, std::string* out) {
  if (!value.IsScalar() || value.Scalar().empty()) {
    problem(value, key + ": expected text");
    return false;
  }
  *out = value.Scalar();
  origin(value, key);
  return true;
}

bool Reader::boolean(const Node& value, const std::string& key, bool* out) {
  const std::string found = value.IsScalar() ? value.Scalar() : "a list or map";
  if (found != "true" && found != "false") {
    problem(value, key + ": expected true or false, found '" + found + "'");
    return false;
  }
  *out = found == "true";
  origin(value, key);
  return true;
}

bool Reader::number(const Node& value, const std::string& key, std::pair<uint64_t, uint64_t> range,
                    uint64_t* out) {
  const std::string found = value.IsScalar() ? value.Scalar() : "a list or map";
  const bool digits = !found.empty() && found.size() <= 18 &&
                      found.find_first_not_of("0123456789") == std::string::npos;
  const uint64_t n = digits ? std::strtoull(found.c_str(), nullptr, 10) : 0;
  if (!digits || n < range.first || n > range.second) {
    problem(value, key + ": expected a number from " + std::to_string(range.first) + " to " +
                       std::to_string(range.second) + ", found '" + found + "'");
    return false;
  }
  *out = n;
  origin(value, key);
  return true;
}

bool Reader::amount(const Node& value, const std::string& key, std::optional<Amount>* out) {
  Result<Amount> parsed = parse_amount(value.IsScalar() ? value.Scalar() : "a list or map");
  if (!parsed) {
    problem(value, key + ": " + parsed.error().message);
    return false;
  }
  *out = *parsed;
  origin(value, key);
  return true;
}

bool Reader::texts(const Node& value, const std::string& key, std::vector<std::string>* out) {
  if (!list(value, key)) return false;
  size_t index = 0;
  for (const Node& item : value) {
    std::string one;
    if (text(item, key + "[" + std::to_string(index++) + "]", &one)) out->push_back(one);
  }
  origin(value, key);
  return true;
}

// Relative paths are relative to the profile, not to where the command was started.
std::string Reader::beside_profile(const std::string& path) const {
  if (path[0] == '/') return path;
  const size_t slash = file_.rfind('/');
  return slash == std::string::npos ? path : file_.substr(0, slash + 1) + path;
}

// ---- the keys -----------------------------------------------------------------------------------

void Reader::version(const Node& value, const std::string& key) {
  std::string found;
  if (!text(value, key, &found) || found == "1") return;
  problem(value, "version: this pantheon reads version 1, found '" + found +
                     "': upgrade pantheon, or write the profile for version 1");
}

void Reader::plugin_dirs(const Node& value, const std::string& key) {
  if (!texts(value, key, &out_->plugin_dirs)) return;
  for (std::string& dir : out_->plugin_dirs) dir = beside_profile(dir);
}

void Reader::plugins(const Node& value, const std::string& key) {
  if (value.IsNull()) return;
  if (!value.IsMap()) {
    problem(value, key + ": expected a map, one entry a plugin: 'cpu: {}'");
    return;
  }
  std::set<std::string> seen;
  for (const auto& item : value) {
    // A bare null is YAML's nothing, and here the null plugin.
    const std::string name = item.first.IsNull()     ? "null"
                             : item.first.IsScalar() ? item.first.Scalar()
                                                     : "";
    if (name.empty() || !seen.insert(name).second) {
      problem(item.first, key + ": expected each plugin's name once, found '" + name + "'");
      continue;
    }
    plugin(name, item.second, key + "." + name);
    origin(item.first, key + "." + name);
  }
}

void Reader::plugin(const std::string& name, const Node& value, const std::string& key) {
  Plugin plugin;
  plugin.name = name;
  each(value, key,
       {{"required", [&](const Node& v, const std::string& k) { boolean(v, k, &plugin.required); }},
        {"isolation",
         [&](const Node& v, const std::string& k) {
           std::string found;
           if (!text(v, k, &found)) return;
           plugin.isolated = found == "process";
           if (!plugin.isolated && found != "none")
             problem(v, k + ": expected none or process, found '" + found + "'");
         }},
        {"options", [&](const Node& v, const std::string& k) {
           if (v.IsNull()) return;
           if (!v.IsMap()) return problem(v, k + ": expected a map of options");
           std::set<std::string> seen;
           for (const auto& option : v) {
             const std::string full =
                 k + "." + (option.first.IsScalar() ? option.first.Scalar() : std::string());
             std::string word;
             if (!seen.insert(full).second) {
               problem(option.first, "option '" + full + "' is given twice");
             } else if (text(option.second, full, &word)) {
               plugin.options.emplace_back(option.first.Scalar(), word);
             }
           }
         }}});
  out_->plugins.push_back(std::move(plugin));
}

void Reader::dies(const Node& value, const std::string& key) {
  if (!list(value, key)) return;
  size_t index = 0;
  for (const Node& item : value) die(item, key + "[" + std::to_string(index++) + "]");
}

void Reader::die(const Node& value, const std::string& key) {
  DieRule rule;
  each(value, key,
       {{"match",
         [&](const Node& v, const std::string& k) {
           if (!text(v, k, &rule.match)) return;
           if (rule.match.find(':') != std::string::npos || rule.match == "*") return;
           problem(v, k + ": expected PLUGIN:INDEX or a pattern such as 'tt:*', found '" +
                          rule.match + "'");
         }},
        {"reserve", [&](const Node& v, const std::string& k) { amount(v, k, &rule.reserve); }},
        {"bytes", [&](const Node& v, const std::string& k) { amount(v, k, &rule.bytes); }}});
  if (rule.match.empty()) problem(value, key + ": 'match' is missing: which dies is it for?");
  out_->dies.push_back(std::move(rule));
}

void Reader::models(const Node& value, const std::string& key) {
  if (!list(value, key)) return;
  size_t index = 0;
  for (const Node& item : value) model(item, key + "[" + std::to_string(index++) + "]");
}

void Reader::model(const Node& value, const std::string& key) {
  Model m;
  uint64_t n = 0;
  auto word = [&](std::string* out) {
    return [this, out](const Node& v, const std::string& k) { text(v, k, out); };
  };
  each(value, key,
       {{"name", word(&m.name)},
        {"file", word(&m.file)},
        {"aliases", [&](const Node& v, const std::string& k) { texts(v, k, &m.aliases); }},
        {"copies",
         [&](const Node& v, const std::string& k) {
           if (number(v, k, {1, 1024}, &n) && n > 1) {
             not_yet(v, k + ": " + std::to_string(n), "one copy a model; write copies: 1");
           }
         }},
        {"dies", [&](const Node& v, const std::string& k) { model_dies(v, k, &m); }},
        {"context",
         [&](const Node& v, const std::string& k) {
           if (number(v, k, {1, 1u << 30}, &n)) m.context = static_cast<uint32_t>(n);
         }},
        {"slots",
         [&](const Node& v, const std::string& k) {
           if (number(v, k, {1, 1024}, &n)) m.slots = static_cast<uint32_t>(n);
         }},
        {"lossy",
         [&](const Node& v, const std::string& k) {
           std::string found;
           if (!text(v, k, &found)) return;
           const std::vector<std::string> known = {"none", "bounded", "allowed"};
           auto at = std::find(known.begin(), known.end(), found);
           if (at == known.end()) {
             return problem(v, k + ": unknown '" + found + "'" + suggestion(found, known));
           }
           m.lossy = static_cast<Lossy>(at - known.begin());
         }},
        {"ttl", [&](const Node& v, const std::string& k) {
           std::string found;
           if (text(v, k, &found) && found != "never") {
             not_yet(v, k + ": " + found, "models stay loaded; write ttl: never");
           }
         }}});
  if (m.file.empty()) {
    problem(value, key + ": 'file' is missing: which model file?");
    return;
  }
  m.file = beside_profile(m.file);
  if (m.name.empty()) m.name = model_name(m.file);
  model_names(value, m);
  out_->models.push_back(std::move(m));
}

void Reader::model_dies(const Node& value, const std::string& key, Model* model) {
  if (!texts(value, key, &model->dies)) return;
  if (model->dies.size() > 1) {
    not_yet(value, key + " with " + std::to_string(model->dies.size()) + " entries",
            "a model runs on one die; name one, or a pattern that any of several may match");
  }
}

// Names and aliases share one space: a request must mean one model.
void Reader::model_names(const Node& at, const Model& model) {
  std::vector<std::string> names = model.aliases;
  names.push_back(model.name);
  for (const std::string& name : names) {
    auto [other, fresh] = names_.emplace(name, model.name);
    if (!fresh) {
      problem(at, "the name '" + name + "' is taken by model '" + other->second +
                      "': names and aliases must differ");
    }
  }
}

void Reader::server(const Node& value, const std::string& key) {
  each(value, key,
       {{"host", [&](const Node& v, const std::string& k) { text(v, k, &out_->server.host); }},
        {"port",
         [&](const Node& v, const std::string& k) {
           uint64_t n = 0;
           if (number(v, k, {0, 65535}, &n)) out_->server.port = static_cast<uint16_t>(n);
         }},
        {"call_deadline_s",
         [&](const Node& v, const std::string& k) {
           number(v, k, {1, 3600}, &out_->server.call_deadline_s);
         }},
        {"keys", [&](const Node& v, const std::string& k) {
           not_yet(v, k, "remove it and bind to 127.0.0.1; requests are not authenticated");
         }}});
}

void Reader::fallback(const Node& value, const std::string& key) {
  std::string found;
  if (!text(value, key, &found) || found == "never") return;
  not_yet(value, key + ": " + found, "write fallback: never");
}

}  // namespace

Result<Profile> parse(const std::string& text, const std::string& file) {
  Profile profile;
  profile.path = file;
  std::string problems;
  try {
    const Node root = YAML::Load(text);
    Reader reader(file, &profile);
    reader.read_all(root);
    for (const std::string& p : reader.problems()) problems += (problems.empty() ? "" : "\n") + p;
  } catch (const YAML::Exception& e) {
    problems = Reader::place(file, e.mark) + ": not YAML: " + e.msg;
  }
  if (!problems.empty()) return fail(Code::invalid, problems, "profile");
  profile.configured = profile.plugins;
  return profile;
}

}  // namespace pn::profile
