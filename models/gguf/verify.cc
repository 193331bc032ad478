// SPDX-License-Identifier: Apache-2.0
//
// Looks for everything that is wrong with a file.
//
// Owns the checks that opening does not make because they read every byte. Knows no terminal. The
// one idea: a damaged download is found by values that no training leaves behind: NaN, infinity,
// and long runs of zero bytes where a piece never arrived.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "models/gguf/describe.h"
#include "models/gguf/reader.h"
#include "models/gguf/text.h"
#include "models/gguf/vocabulary.h"
#include "models/quant/dequantise.h"

namespace pn::gguf {
namespace {

// Rows of unused tokens are zero in some models, so only runs longer than a few rows are told.
constexpr uint64_t kHoleBytes = uint64_t{256} << 10;
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;  // decoded it stays in the L2 cache

constexpr const char* kAgain = "resume or repeat the download and compare its checksum";
constexpr const char* kConvert = "download the file again, or convert the model again";
constexpr const char* kOther = "update pantheon, or take another file of this model";

Problem from_error(const Error& error, const std::string& path, bool incomplete) {
  const char* fix = incomplete                        ? kAgain
                    : error.code == Code::unsupported ? kOther
                    : error.code == Code::not_found   ? "check the path"
                                                      : kConvert;
  return {error.message, error.param.empty() ? path : error.param, fix, true};
}

// 0 * x is not 0 for NaN and infinity alone; eight sums, so that the compiler can use vectors.
bool all_finite(const std::vector<float>& values) {
  float sums[8] = {};
  size_t whole = values.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    for (size_t k = 0; k < 8; ++k) sums[k] += values[i + k] * 0;
  for (size_t i = whole; i < values.size(); ++i) sums[0] += values[i] * 0;
  return std::all_of(sums, sums + 8, [](float s) { return s == 0; });
}

// The longest run of zero bytes that passes from piece to piece.
class Holes {
 public:
  void feed(const std::byte* p, uint64_t n) {
    static constexpr std::byte kZeros[4096] = {};
    for (uint64_t i = 0; i < n;) {
      uint64_t step = std::min<uint64_t>(n - i, sizeof kZeros);
      if (std::memcmp(p + i, kZeros, step) == 0)
        run_ += step;
      else
        run_ = 0;
      longest_ = std::max(longest_, run_);
      i += step;
    }
  }
  uint64_t longest() const { return longest_; }  // in steps of 4 KiB

 private:
  uint64_t run_ = 0, longest_ = 0;
};

class Verifier {
 public:
  Verifier(const VerifyOptions& options, std::vector<Problem>* out)
      : options_(options), out_(out) {}

  void run(const std::shared_ptr<const File>& file) {
    path_ = file->shards()[0].path;
    for (const std::string& w : file->warnings())
      out_->push_back({w, path_, "harmless; download again if unexpected", false});
    vocabulary(*file);
    auto model = arch::Model::load(file);
    if (!model) out_->push_back(from_error(model.error(), path_, false));
    types(*file);
    if (options_.values) values(*file);
  }

 private:
  void vocabulary(const File& file) {
    std::vector<std::string> warnings;
    auto read = read_vocabulary(file, &warnings);
    if (!read) {
      Problem p = from_error(read.error(), path_, false);
      p.fatal = read.error().code != Code::unsupported;  // ids can be given without a tokenizer
      out_->push_back(std::move(p));
    }
    for (const std::string& w : warnings)
      out_->push_back({w, path_, "harmless if the id is not needed; else convert again", false});
  }

  void types(const File& file) {
    std::map<uint32_t, uint64_t> count;
    std::map<uint32_t, const Tensor*> first;
    for (const Tensor& t : file.tensors()) {
      if (quant::decodable(t.type)) continue;
      ++count[t.type];
      first.emplace(t.type, &t);
    }
    for (auto [type, tensor] : first) {
      Error error = quant::undecodable(type, tensor->name);
      error.message += fmt::format(" ({} of {} tensors)", count[type], file.tensors().size());
      out_->push_back(from_error(error, path_, false));
    }
  }

  void values(const File& file) {
    uint64_t total = 0, done = 0;
    for (const Tensor& t : file.tensors()) total += t.bytes;
    for (const Tensor& t : file.tensors()) {
      if (!tensor(t, &done, total)) return;
      file.drop_pages(t);
    }
  }

  // False: the caller wants to stop.
  bool tensor(const Tensor& t, uint64_t* done, uint64_t total) {
    const TypeInfo* info = type_info(t.type);
    uint64_t blocks = t.bytes / info->block_bytes;
    uint64_t step = std::max<uint64_t>(1, kPieceBytes / info->block_bytes);
    bool decode = quant::decodable(t.type);
    Holes holes;
    uint64_t bad = 0, first_bad = 0;
    for (uint64_t at = 0; at < blocks; at += step) {
      uint64_t n = std::min(step, blocks - at);
      const std::byte* p = t.data + at * info->block_bytes;
      holes.feed(p, n * info->block_bytes);
      row_.resize(n * info->block);
      if (decode && quant::dequantise(t.type, p, row_) && !all_finite(row_)) {
        for (uint64_t i = 0; i < row_.size(); ++i)
          if (!std::isfinite(row_[i]) && bad++ == 0) first_bad = at * info->block + i;
      }
      *done += n * info->block_bytes;
      if (options_.progress && !options_.progress(*done, total)) return false;
    }
    if (bad > 0)
      out_->push_back(
          {fmt::format("{}: tensor {} holds {} values that are NaN or infinite, element "
                       "{} first",
                       path_, quoted(t.name), bad, first_bad),
           t.name, kAgain, true});
    // A vector of zeros is a plausible bias.
    bool all_zero = t.rank > 1 && t.bytes >= 4096 && holes.longest() >= t.bytes;
    if (all_zero || holes.longest() >= kHoleBytes)
      out_->push_back({fmt::format("{}: tensor {} holds {} of zeros in a row: a piece of the "
                                   "download may be missing",
                                   path_, quoted(t.name), byte_count(holes.longest())),
                       t.name, kAgain, false});
    return true;
  }

  const VerifyOptions& options_;
  std::vector<Problem>* out_;
  std::string path_;
  std::vector<float> row_;
};

}  // namespace

std::vector<Problem> verify(const std::string& path, const VerifyOptions& options) {
  std::vector<Problem> problems;
  Reader reader;
  auto file = reader.open(path);
  if (!file)
    problems.push_back(from_error(file.error(), path, reader.incomplete()));
  else
    Verifier(options, &problems).run(*file);
  return problems;
}

}  // namespace pn::gguf
