// SPDX-License-Identifier: Apache-2.0
//
// What a person wants to know of a model file: `pantheon models show`, `list` and `verify`.
//
// Owns the facts and findings as data and as JSON with stable keys. Knows no terminal. The one
// idea: every finding says what, where and how to fix it, and a file is never just "broken".
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hal/host/result.h"
#include "models/arch/plan.h"
#include "models/gguf/file.h"

namespace pn::gguf {

struct TypeUse {
  std::string type;  // "Q4_K"
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  bool decodable = false;  // by this build
};

// incomplete: more bytes would help. unsupported: whole, but not for this build.
enum class State { ok, incomplete, broken, unsupported };
const char* state_name(State state);

struct Summary {
  std::string path;
  std::string name;  // general.name, else the file's name
  std::string architecture;
  uint64_t parameters = 0;     // elements of all tensors
  std::vector<TypeUse> types;  // most bytes first
  uint64_t tensors = 0;
  uint64_t context = 0;   // tokens trained for; 0 unknown
  std::string tokenizer;  // "gpt2, qwen2"; "none"
  uint64_t tokens = 0;
  bool chat_template = false;
  uint64_t bytes = 0;  // of all parts
  uint32_t parts = 1;
  uint64_t kv_bytes_per_token = 0;          // F16 cache; 0 unknown
  std::optional<arch::HyperParams> params;  // absent when this build cannot run it
  State state = State::ok;
  std::string refusal;  // when not ok
  std::vector<std::string> warnings;
};

// Never fails: what cannot be known stays empty, and `refusal` says why the model cannot run.
Summary summarise(std::shared_ptr<const File> file);

struct Listed {
  std::string path;  // of a split set: its first part
  State state = State::ok;
  std::string reason;  // when not ok
  uint64_t bytes = 0;
  std::optional<Summary> summary;  // when the file opens
};

// All *.gguf under FOLDER, four levels deep, by path; a split set once.
Result<std::vector<Listed>> list(const std::string& folder);

struct Problem {
  std::string what;
  std::string where;  // file, key or tensor
  std::string fix;
  bool fatal = true;  // false: the model runs all the same
};

struct VerifyOptions {
  bool values = true;  // decode every tensor, look for NaN, infinity and holes
  // Bytes done of all; false stops.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Empty: nothing wrong. Memory stays below a few MiB beside the mapping.
std::vector<Problem> verify(const std::string& path, const VerifyOptions& options);

nlohmann::ordered_json to_json(const Summary& summary);
nlohmann::ordered_json to_json(const std::vector<Listed>& files);
nlohmann::ordered_json to_json(const std::vector<Problem>& problems);

}  // namespace pn::gguf
