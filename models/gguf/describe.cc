// SPDX-License-Identifier: Apache-2.0
//
// Summaries and folder lists.
//
// Owns how an opened or refused file is told to a person. Knows no terminal.
#include "models/gguf/describe.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_set>

#include "models/gguf/reader.h"
#include "models/gguf/vocabulary.h"
#include "models/quant/dequantise.h"

namespace pn::gguf {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 4;

std::string text_or(const File& file, const std::string& key, std::string fallback) {
  auto text = file.text(key, fallback);
  return text ? *text : fallback;
}

std::vector<TypeUse> types_of(const File& file) {
  std::map<uint32_t, TypeUse> by_type;
  for (const Tensor& t : file.tensors()) {
    TypeUse& use = by_type[t.type];
    use.type = type_info(t.type)->name;
    use.decodable = quant::decodable(t.type);
    uint64_t elements = 1;
    for (int64_t n : t.shape) elements *= static_cast<uint64_t>(n);
    ++use.tensors;
    use.elements += elements;
    use.bytes += t.bytes;
  }
  std::vector<TypeUse> out;
  out.reserve(by_type.size());
  for (auto& [type, use] : by_type) out.push_back(std::move(use));
  std::stable_sort(out.begin(), out.end(),
                   [](const TypeUse& a, const TypeUse& b) { return a.bytes > b.bytes; });
  return out;
}

void tokenizer_of(const File& file, Summary* s) {
  auto vocabulary = read_vocabulary(file, &s->warnings);
  s->tokenizer = "none";
  if (!vocabulary) {
    if (vocabulary.error().code != Code::unsupported)
      s->warnings.push_back(vocabulary.error().message);
    return;
  }
  s->tokenizer = vocabulary->model + (vocabulary->pre.empty() ? "" : ", " + vocabulary->pre);
  s->tokens = vocabulary->tokens.size();
}

// 1 for "x-00002-of-00003.gguf"; nothing when the name is not one of a set.
std::optional<uint64_t> part_index(const std::string& name) {
  constexpr size_t kTail = sizeof("-00001-of-00001.gguf") - 1;
  if (name.size() < kTail) return std::nullopt;
  std::string tail = name.substr(name.size() - kTail);
  auto digits = [&](size_t at) {
    return std::all_of(tail.begin() + static_cast<long>(at),
                       tail.begin() + static_cast<long>(at) + 5,
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !digits(1) || !digits(10))
    return std::nullopt;
  uint64_t number = std::stoull(tail.substr(1, 5));
  return number == 0 ? std::nullopt : std::optional<uint64_t>(number - 1);
}

// The path of the first part of the same set.
std::string first_part(const std::string& path) {
  std::string out = path;
  out.replace(path.size() - 19, 5, "00001");
  return out;
}

State state_of(const Error& error, bool incomplete) {
  if (incomplete || error.code == Code::busy) return State::incomplete;
  return error.code == Code::unsupported ? State::unsupported : State::broken;
}

Listed look_at(const std::string& path) {
  Listed l;
  l.path = path;
  std::error_code ignored;
  uintmax_t size = fs::file_size(path, ignored);
  l.bytes = ignored ? 0 : size;
  Reader reader;
  auto file = reader.open(path);
  if (!file) {
    l.state = state_of(file.error(), reader.incomplete());
    l.reason = file.error().message;
    return l;
  }
  l.summary = summarise(*file);
  l.bytes = l.summary->bytes;
  l.reason = l.summary->refusal;
  l.state = l.summary->state;
  return l;
}

}  // namespace

Summary summarise(std::shared_ptr<const File> file) {
  Summary s;
  s.path = file->shards()[0].path;
  s.name = text_or(*file, "general.name", "");
  if (s.name.empty()) s.name = fs::path(s.path).stem().string();
  s.architecture = text_or(*file, "general.architecture", "");
  s.types = types_of(*file);
  for (const TypeUse& use : s.types) s.parameters += use.elements;
  s.tensors = file->tensors().size();
  s.parts = static_cast<uint32_t>(file->shards().size());
  for (const Shard& shard : file->shards()) s.bytes += shard.bytes;
  s.warnings = file->warnings();
  s.context = file->u32(s.architecture + ".context_length", 0).value_or(0);
  tokenizer_of(*file, &s);
  s.chat_template = file->find("tokenizer.chat_template") != nullptr;
  auto model = arch::Model::load(file);
  if (!model) {
    s.refusal = model.error().message;
    s.state = state_of(model.error(), false);
    return s;
  }
  const arch::HyperParams& p = (*model)->params();
  s.params = p;
  s.kv_bytes_per_token = uint64_t{2} * p.layers * p.kv_heads * (p.key_dim + p.value_dim);
  for (const Tensor& t : file->tensors())
    if (s.refusal.empty() && !quant::decodable(t.type)) {
      s.refusal = s.path + ": " + quant::undecodable(t.type, t.name).message;
      s.state = State::unsupported;
      s.params.reset();
    }
  return s;
}

const char* state_name(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::incomplete:
      return "incomplete";
    case State::broken:
      return "broken";
    default:
      return "unsupported";
  }
}

Result<std::vector<Listed>> list(const std::string& folder) {
  std::error_code error;
  auto at = fs::recursive_directory_iterator(folder,
                                             fs::directory_options::skip_permission_denied |
                                                 fs::directory_options::follow_directory_symlink,
                                             error);
  if (error)
    return fail(error == std::errc::no_such_file_or_directory ? Code::not_found : Code::invalid,
                folder + ": cannot list this folder: " + error.message(), "folder");
  std::vector<std::string> paths;
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (at.depth() >= kDepth) at.disable_recursion_pending();
    if (at->path().extension() == ".gguf" && !at->is_directory(ignored))
      paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::unordered_set<std::string> all(paths.begin(), paths.end());
  std::vector<Listed> out;
  for (const std::string& path : paths) {
    auto part = part_index(path);
    bool has_first = part && all.contains(first_part(path));
    if (part && *part > 0 && has_first) continue;
    out.push_back(look_at(path));
    if (part && *part > 0) {  // listed all the same, since nothing else will tell of it
      out.back().state = State::incomplete;
      out.back().reason =
          path + ": the first part of this set is missing (" + first_part(path) + "): download it";
    }
  }
  return out;
}

}  // namespace pn::gguf
