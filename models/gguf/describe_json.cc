// SPDX-License-Identifier: Apache-2.0
//
// Summaries, lists and findings as JSON.
//
// Owns the key names, which scripts rely on: add, never rename. Knows no file.
#include <nlohmann/json.hpp>

#include "models/gguf/describe.h"

namespace pn::gguf {

using Json = nlohmann::ordered_json;

Json to_json(const Summary& s) {
  Json types = Json::array();
  for (const TypeUse& t : s.types)
    types.push_back({{"type", t.type},
                     {"tensors", t.tensors},
                     {"elements", t.elements},
                     {"bytes", t.bytes},
                     {"decodable", t.decodable}});
  Json j = {{"path", s.path},
            {"name", s.name},
            {"architecture", s.architecture},
            {"parameters", s.parameters},
            {"bytes", s.bytes},
            {"parts", s.parts},
            {"tensors", s.tensors},
            {"types", std::move(types)},
            {"context", s.context},
            {"tokenizer", s.tokenizer},
            {"tokens", s.tokens},
            {"chat_template", s.chat_template},
            {"state", state_name(s.state)},
            {"refusal", s.refusal},
            {"warnings", s.warnings}};
  if (!s.params) return j;
  const arch::HyperParams& p = *s.params;
  j["layers"] = p.layers;
  j["embed"] = p.embed;
  j["feed_forward"] = p.ff;
  j["heads"] = p.heads;
  j["kv_heads"] = p.kv_heads;
  j["head_dim"] = p.key_dim;
  j["vocab"] = p.vocab;
  j["experts"] = p.experts;
  j["experts_used"] = p.experts_used;
  j["tied"] = p.tied;
  j["kv_bytes_per_token"] = s.kv_bytes_per_token;
  return j;
}

Json to_json(const std::vector<Listed>& files) {
  Json out = Json::array();
  for (const Listed& l : files) {
    Json j = {
        {"path", l.path}, {"state", state_name(l.state)}, {"reason", l.reason}, {"bytes", l.bytes}};
    if (l.summary) j["summary"] = to_json(*l.summary);
    out.push_back(std::move(j));
  }
  return out;
}

Json to_json(const std::vector<Problem>& problems) {
  Json out = Json::array();
  for (const Problem& p : problems)
    out.push_back({{"what", p.what}, {"where", p.where}, {"fix", p.fix}, {"fatal", p.fatal}});
  return out;
}

}  // namespace pn::gguf
