// SPDX-License-Identifier: Apache-2.0
//
// The effective profile as lines: key, value, where the value is from.
#include "engine/profile/profile.h"

namespace pn::profile {

namespace {

std::string join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return "[" + text + "]";
}

class Lines {
 public:
  explicit Lines(const Profile& profile) : profile_(profile) {}

  void add(const std::string& key, const std::string& value) {
    auto at = profile_.origins.find(key);
    out_.push_back({key, value, at == profile_.origins.end() ? "default" : at->second});
  }
  std::vector<Shown> take() { return std::move(out_); }

 private:
  const Profile& profile_;
  std::vector<Shown> out_;
};

void show_plugins(const Profile& profile, Lines* lines) {
  if (profile.plugins.empty()) lines->add("plugins", "every installed plugin with a usable die");
  for (const Plugin& plugin : profile.plugins) {
    const std::string key = "plugins." + plugin.name;
    lines->add(key, "in use");
    lines->add(key + ".required", plugin.required ? "true" : "false");
    lines->add(key + ".isolation", plugin.isolated ? "process" : "none");
    for (const auto& [name, value] : plugin.options) lines->add(key + ".options." + name, value);
  }
  for (const auto& [name, value] : profile.overrides) lines->add("options." + name, value);
}

void show_dies(const Profile& profile, Lines* lines) {
  lines->add("reserve", profile.reserve.text());
  for (size_t i = 0; i < profile.dies.size(); ++i) {
    const DieRule& rule = profile.dies[i];
    const std::string key = "dies[" + std::to_string(i) + "]";
    lines->add(key + ".match", rule.match);
    lines->add(key + ".reserve", (rule.reserve ? *rule.reserve : profile.reserve).text());
    lines->add(key + ".bytes", rule.bytes ? rule.bytes->text() : "all");
  }
}

void show_models(const Profile& profile, Lines* lines) {
  static const char* lossy[] = {"none", "bounded", "allowed"};
  for (size_t i = 0; i < profile.models.size(); ++i) {
    const Model& model = profile.models[i];
    const std::string key = "models[" + std::to_string(i) + "]";
    lines->add(key + ".name", model.name);
    lines->add(key + ".file", model.file);
    lines->add(key + ".aliases", join(model.aliases));
    lines->add(key + ".copies", std::to_string(model.copies));
    lines->add(key + ".dies", model.dies.empty() ? "placed" : join(model.dies));
    lines->add(key + ".context",
               model.context == 0 ? "min(model, 8192)" : std::to_string(model.context));
    lines->add(key + ".slots", std::to_string(model.slots));
    lines->add(key + ".lossy", lossy[static_cast<int>(model.lossy)]);
    lines->add(key + ".ttl", "never");
  }
}

}  // namespace

std::vector<Shown> show(const Profile& profile) {
  Lines lines(profile);
  lines.add("version", "1");
  lines.add("plugin_dirs", join(profile.plugin_dirs));
  show_plugins(profile, &lines);
  show_dies(profile, &lines);
  show_models(profile, &lines);
  lines.add("server.host", profile.server.host);
  lines.add("server.port", std::to_string(profile.server.port));
  lines.add("require_all", profile.require_all ? "true" : "false");
  lines.add("server.call_deadline_s", std::to_string(profile.server.call_deadline_s));
  lines.add("fallback", profile.fallback);
  return lines.take();
}

}  // namespace pn::profile
