// SPDX-License-Identifier: Apache-2.0
//
// Sizes and places of tensor data.
//
// Owns the arithmetic on sizes and offsets, all of it checked. Knows no key.
#include "models/gguf/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gguf/text.h"

namespace pn::gguf {
namespace {

tl::unexpected<Error> broken(const std::string& file, const std::string& what,
                             const std::string& tensor = {}) {
  return fail(Code::invalid, fmt::format("{}: {}", file, what), tensor);
}

uint64_t padded(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

Result<void> no_overlap(const Placement& at, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> order;
  for (const Tensor& t : tensors)
    if (t.bytes > 0) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Tensor &a = *order[i - 1], &b = *order[i];
    if (a.offset + a.bytes > b.offset)
      return broken(
          at.name,
          fmt::format("tensors {} and {} overlap by {}: the tensor table is damaged",
                      quoted(a.name), quoted(b.name), byte_count(a.offset + a.bytes - b.offset)),
          b.name);
  }
  return {};
}

// Where a tensor ends in the file; its offset becomes one of the file.
Result<uint64_t> locate(const Placement& at, uint64_t total, Tensor& t) {
  if (t.offset % at.alignment != 0)
    return broken(at.name,
                  fmt::format("tensor {} is at offset {}, no multiple of the alignment {}",
                              quoted(t.name), t.offset, at.alignment),
                  t.name);
  uint64_t start = padded(at.table_end, at.alignment), end = 0;
  bool wild =
      __builtin_add_overflow(t.offset, t.bytes, &end) || __builtin_add_overflow(end, start, &end);
  // Behind the end of this file and of any file that holds these tensors.
  if (wild || (end > at.image.size() && end - start > total))
    return broken(at.name,
                  fmt::format("tensor {} claims {} at offset {}, yet all tensors together take {}: "
                              "the tensor table is damaged",
                              quoted(t.name), byte_count(t.bytes), t.offset, byte_count(total)),
                  t.name);
  t.offset += start;
  return end;
}

}  // namespace

Result<void> measure(const std::string& name, std::vector<Tensor>& tensors) {
  for (Tensor& t : tensors) {
    const TypeInfo* info = type_info(t.type);
    if (t.shape[0] % info->block != 0)
      return broken(name,
                    fmt::format("tensor {} has rows of {} elements; type {} needs a multiple of {}",
                                quoted(t.name), t.shape[0], info->name, info->block),
                    t.name);
    int64_t elements = 1, bytes = t.shape[0] / info->block;
    bool overflow = __builtin_mul_overflow(bytes, int64_t{info->block_bytes}, &bytes);
    for (int d = 0; d < 4; ++d) {
      overflow |= __builtin_mul_overflow(elements, t.shape[d], &elements);
      if (d > 0) overflow |= __builtin_mul_overflow(bytes, t.shape[d], &bytes);
    }
    if (overflow)
      return broken(name,
                    fmt::format("tensor {} of {} x {} x {} x {} elements overflows 63 bits: the "
                                "tensor table is damaged",
                                quoted(t.name), t.shape[0], t.shape[1], t.shape[2], t.shape[3]),
                    t.name);
    t.bytes = static_cast<uint64_t>(bytes);
  }
  return {};
}

Result<void> place(const Placement& at, Parsed* parsed, bool* incomplete) {
  if (parsed->tensors.empty()) return {};
  uint64_t total = 0, end = 0;
  for (const Tensor& t : parsed->tensors)
    if (__builtin_add_overflow(total, padded(t.bytes, at.alignment), &total))
      return broken(at.name,
                    "the tensors' sizes add up to more than 64 bits: the tensor table is "
                    "damaged");
  const Tensor* first_out = nullptr;  // in file order: what a resumed download brings first
  for (Tensor& t : parsed->tensors) {
    PN_TRY(uint64_t last, locate(at, total, t));
    end = std::max(end, last);
    if (last > at.image.size() && (first_out == nullptr || t.offset < first_out->offset))
      first_out = &t;
  }
  if (first_out != nullptr) {
    *incomplete = true;
    return broken(at.name,
                  fmt::format("the file is incomplete: it has {} and needs {}, {} are missing, "
                              "tensor {} first: resume the download or copy it again",
                              byte_count(at.image.size()), byte_count(end),
                              byte_count(end - at.image.size()), quoted(first_out->name)),
                  first_out->name);
  }
  if (at.image.size() > padded(end, at.alignment))
    parsed->warnings.push_back(fmt::format("{}: {} after the last tensor are ignored", at.name,
                                           byte_count(at.image.size() - end)));
  for (Tensor& t : parsed->tensors) t.data = at.image.data() + t.offset;
  return no_overlap(at, parsed->tensors);
}

}  // namespace pn::gguf
