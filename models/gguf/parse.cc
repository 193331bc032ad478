// SPDX-License-Identifier: Apache-2.0
//
// The parser of one GGUF image (format versions 2 and 3, little-endian).
//
// Owns the walk: header, key/value table, tensor table (placement.h does the data). Knows no
// architecture. The one idea: each way a file can be wrong has its own words, which name the key or
// tensor, what was found, and what to do.
#include "models/gguf/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <unordered_set>

#include "models/gguf/cursor.h"
#include "models/gguf/placement.h"
#include "models/gguf/text.h"

namespace pn::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF loads are plain copies here");

// Smallest possible table entries: an 8-byte length, one byte of name and the fixed fields.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 63;
// 2^26 elements are 100 vocabularies. Elements are widened to 8 bytes (32 for a string), so this
// keeps a hostile multi-gigabyte file from asking for eight times its size.
constexpr uint64_t kMaxElements = uint64_t{1} << 26;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 26;
constexpr uint64_t kPlausible = uint64_t{1} << 17;
constexpr uint64_t kReserve = uint64_t{1} << 16;
constexpr uint32_t kDefaultAlignment = 32;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kValueTypes
};
constexpr uint32_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class Parser {
 public:
  Parser(std::span<const std::byte> image, const std::string& name, bool* incomplete)
      : image_(image), cursor_(image), name_(name), incomplete_(incomplete) {}

  Result<Parsed> run() {
    PN_TRY(header());
    PN_TRY(pairs());
    PN_TRY(directory());
    PN_TRY(types());
    PN_TRY(measure(name_, out_.tensors));
    PN_TRY(place({image_, name_, cursor_.position(), alignment_}, &out_, incomplete_));
    return std::move(out_);
  }

 private:
  Result<void> header();
  Result<void> version(uint32_t number);
  Result<void> counted(uint64_t count, uint64_t least_bytes, const char* what);
  Result<void> pairs();
  Result<Value> value(const std::string& key, uint32_t type);
  Result<Array> array(const std::string& key);
  Result<void> text_length(const std::string& key, uint64_t length) const;
  Result<Array> strings(const std::string& key, uint64_t count);
  Result<void> alignment(uint32_t type, const Value& value);
  Result<void> directory();
  Result<Tensor> entry(uint64_t index);
  Result<void> types();

  tl::unexpected<Error> broken(const std::string& what, std::string param = {}) const {
    return fail(Code::invalid, fmt::format("{}: {}", name_, what), std::move(param));
  }

  tl::unexpected<Error> cut(const std::string& where, std::string param = {}) {
    *incomplete_ = true;
    return broken(fmt::format("the file ends after {}, inside {}: it is incomplete, resume the "
                              "download or copy it again",
                              byte_count(image_.size()), where),
                  std::move(param));
  }

  std::span<const std::byte> image_;
  Cursor cursor_;
  const std::string& name_;
  bool* incomplete_;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint32_t alignment_ = kDefaultAlignment;
  Parsed out_;
};

std::string hex4(std::span<const std::byte> image) {
  std::string text;
  for (size_t i = 0; i < 4 && i < image.size(); ++i)
    text += fmt::format("{}{:02x}", i ? " " : "", std::to_integer<int>(image[i]));
  return text;
}

// What a file that is not GGUF probably is; downloads go wrong in few ways.
std::string_view not_gguf_hint(std::string_view head) {
  if (head.starts_with("version https://git-lfs"))
    return "this is a Git LFS pointer, not the model: run `git lfs pull`";
  if (head.starts_with("<")) return "this is a web page: download the file itself";
  if (head.starts_with("PK")) return "this is a zip or PyTorch file: convert it to GGUF first";
  if (head.size() >= 9 && head[8] == '{')
    return "this may be safetensors: convert it to GGUF first";
  if (head.substr(0, 4) == std::string_view("\0\0\0\0", 4))
    return "it starts with zeros: the download is preallocated or damaged, fetch it again";
  return "give a GGUF model file";
}

Result<void> Parser::header() {
  if (image_.empty()) {
    *incomplete_ = true;
    return broken("the file is empty: download or copy it again");
  }
  if (image_.size() < 4) return cut("the four magic bytes");
  std::string_view head(reinterpret_cast<const char*>(image_.data()),
                        std::min<size_t>(image_.size(), 64));
  if (!head.starts_with("GGUF"))
    return broken(fmt::format("is no GGUF file: it starts with {} where 47 47 55 46 is wanted; {}",
                              hex4(image_), not_gguf_hint(head)));
  uint32_t magic = 0, number = 0;
  if (!cursor_.read(&magic) || !cursor_.read(&number)) return cut("the header");
  PN_TRY(version(number));
  int64_t tensors = 0, pairs = 0;
  if (!cursor_.read(&tensors) || !cursor_.read(&pairs)) return cut("the header");
  if (tensors < 0 || pairs < 0)
    return broken(
        fmt::format("the header counts {} tensors and {} keys; neither can be negative: "
                    "the file is damaged, download it again",
                    tensors, pairs));
  pair_count_ = static_cast<uint64_t>(pairs);
  tensor_count_ = static_cast<uint64_t>(tensors);
  PN_TRY(counted(pair_count_, kMinPairBytes, "keys"));
  return counted(tensor_count_, kMinTensorBytes, "tensors");
}

// A count is judged by the bytes that are there before anything is sized by it. Few real files have
// more than 10,000 entries, so a smaller excess is a cut download.
Result<void> Parser::counted(uint64_t count, uint64_t least_bytes, const char* what) {
  if (count <= cursor_.left() / least_bytes) return {};
  if (count <= kPlausible)
    return cut(fmt::format("the metadata (the header counts {} {})", count, what));
  return broken(
      fmt::format("the header counts {} {}, more than the file's {} can hold: the file is "
                  "damaged, download it again",
                  count, what, byte_count(image_.size())));
}

Result<void> Parser::version(uint32_t number) {
  out_.version = number;
  if (number == 2 || number == 3) return {};
  if (number == 0) return broken("format version 0 does not exist: the header is damaged");
  if ((number & 0xffffu) == 0)
    return broken(
        fmt::format("is big-endian (version reads as {:#x}): convert it to little-endian", number));
  if (number == 1)
    return fail(Code::unsupported,
                fmt::format("{}: format version 1 is no longer read: convert the model again with "
                            "a current converter (version 3)",
                            name_));
  return fail(Code::unsupported,
              fmt::format("{}: format version {} is newer than this build reads (2 and 3): update "
                          "pantheon",
                          name_, number));
}

Result<void> Parser::pairs() {
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < pair_count_; ++i) {
    auto where = [&] { return fmt::format("the metadata (key {} of {})", i + 1, pair_count_); };
    uint64_t length = 0;
    if (!cursor_.read(&length)) return cut(where());
    if (length == 0) return broken(fmt::format("key {} of {} is empty", i + 1, pair_count_));
    if (length > kMaxKeyBytes)
      return broken(
          fmt::format("key {} of {} claims a name of {} bytes (at most {}): the metadata "
                      "is damaged",
                      i + 1, pair_count_, length, kMaxKeyBytes));
    std::string_view view;
    if (!cursor_.bytes(length, &view)) return cut(where());
    std::string key(view);
    if (!seen.insert(view).second)
      return broken(fmt::format("key {} appears twice", quoted(key)), key);
    uint32_t type = 0;
    if (!cursor_.read(&type)) return cut(where(), key);
    PN_TRY(Value found, value(key, type));
    if (key == "general.alignment") PN_TRY(alignment(type, found));
    out_.metadata.emplace_back(std::move(key), std::move(found));
  }
  return {};
}

template <typename T>
T load(std::string_view bytes) {
  T v;
  std::memcpy(&v, bytes.data(), sizeof v);
  return v;
}

// One scalar of `type`; bytes hold exactly that scalar.
Value scalar(uint32_t type, std::string_view bytes) {
  switch (type) {
    case kU8:
      return uint64_t{load<uint8_t>(bytes)};
    case kI8:
      return int64_t{load<int8_t>(bytes)};
    case kU16:
      return uint64_t{load<uint16_t>(bytes)};
    case kI16:
      return int64_t{load<int16_t>(bytes)};
    case kU32:
      return uint64_t{load<uint32_t>(bytes)};
    case kI32:
      return int64_t{load<int32_t>(bytes)};
    case kU64:
      return load<uint64_t>(bytes);
    case kI64:
      return load<int64_t>(bytes);
    case kF32:
      return double{load<float>(bytes)};
    case kF64:
      return load<double>(bytes);
    default:
      return load<uint8_t>(bytes) != 0;  // bool; some writers store other non-zero bytes
  }
}

Result<Value> Parser::value(const std::string& key, uint32_t type) {
  if (type >= kValueTypes)
    return broken(fmt::format("key {} has the unknown value type {}: the metadata is damaged, or "
                              "newer than this build",
                              quoted(key), type),
                  key);
  auto where = [&] { return fmt::format("the value of key {}", quoted(key)); };
  if (type == kArray) {
    PN_TRY(Array items, array(key));
    return Value(std::move(items));
  }
  std::string_view bytes;
  if (type == kString) {
    uint64_t length = 0;
    if (!cursor_.read(&length)) return cut(where(), key);
    PN_TRY(text_length(key, length));
    if (!cursor_.bytes(length, &bytes)) return cut(where(), key);
    return Value(std::string(bytes));
  }
  if (!cursor_.bytes(kValueBytes[type], &bytes)) return cut(where(), key);
  return scalar(type, bytes);
}

Result<Array> Parser::array(const std::string& key) {
  auto where = [&] { return fmt::format("the array of key {}", quoted(key)); };
  uint32_t type = 0;
  uint64_t count = 0;
  if (!cursor_.read(&type) || !cursor_.read(&count)) return cut(where(), key);
  if (type == kArray)
    return broken(fmt::format("key {} holds an array of arrays, which no model needs", quoted(key)),
                  key);
  if (type >= kValueTypes)
    return broken(fmt::format("the array of key {} has the unknown element type {}: the metadata "
                              "is damaged, or newer than this build",
                              quoted(key), type),
                  key);
  if (count > kMaxElements)
    return broken(
        fmt::format("the array of key {} claims {} elements, and at most {} are read: the "
                    "metadata is damaged",
                    quoted(key), count, kMaxElements),
        key);
  uint64_t bytes = count * kValueBytes[type];  // < 2^30 by the line above
  if (bytes > cursor_.left()) return cut(where(), key);
  if (type == kString) return strings(key, count);
  std::string_view data;
  if (!cursor_.bytes(bytes, &data)) return cut(where(), key);
  auto fill = [&]<typename T>(std::vector<T> items) {
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      Value v = scalar(type, data.substr(i * kValueBytes[type], kValueBytes[type]));
      if (type == kBool) items.push_back(static_cast<T>(std::get<bool>(v)));
      if (type != kBool)
        if (const T* p = std::get_if<T>(&v)) items.push_back(*p);
    }
    return Array(std::move(items));
  };
  if (type == kF32 || type == kF64) return fill(std::vector<double>{});
  bool is_signed = type == kI8 || type == kI16 || type == kI32 || type == kI64;
  return is_signed ? fill(std::vector<int64_t>{}) : fill(std::vector<uint64_t>{});
}

Result<void> Parser::text_length(const std::string& key, uint64_t length) const {
  if (length <= kMaxTextBytes) return {};
  return broken(
      fmt::format("a text of key {} claims {} bytes, and at most {} are read: the metadata "
                  "is damaged",
                  quoted(key), length, kMaxTextBytes),
      key);
}

Result<Array> Parser::strings(const std::string& key, uint64_t count) {
  std::vector<std::string> items;
  items.reserve(std::min(count, kReserve));
  for (uint64_t i = 0; i < count; ++i) {
    auto where = [&] { return fmt::format("text {} of {} of key {}", i + 1, count, quoted(key)); };
    uint64_t length = 0;
    std::string_view bytes;
    if (!cursor_.read(&length)) return cut(where(), key);
    PN_TRY(text_length(key, length));
    if (!cursor_.bytes(length, &bytes)) return cut(where(), key);
    items.emplace_back(bytes);
  }
  return Array(std::move(items));
}

Result<void> Parser::alignment(uint32_t type, const Value& value) {
  const char* key = "general.alignment";
  if (type != kU32)
    return broken(fmt::format("key 'general.alignment' has value type {}; it must be u32 ({})",
                              type, static_cast<uint32_t>(kU32)),
                  key);
  uint64_t found = std::get<uint64_t>(value);
  if (!std::has_single_bit(found))
    return broken(fmt::format("key 'general.alignment' is {}; it must be a power of two", found),
                  key);
  alignment_ = static_cast<uint32_t>(found);
  return {};
}

Result<void> Parser::directory() {
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    PN_TRY(Tensor tensor, entry(i));
    if (!seen.insert(tensor.name).second)
      return broken(fmt::format("tensor {} appears twice", quoted(tensor.name)), tensor.name);
    out_.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<Tensor> Parser::entry(uint64_t index) {
  Tensor t;
  auto where = [&] {
    return fmt::format("the tensor table (entry {} of {}{})", index + 1, tensor_count_,
                       t.name.empty() ? "" : ", " + quoted(t.name));
  };
  uint64_t length = 0;
  std::string_view name;
  if (!cursor_.read(&length)) return cut(where());
  if (length == 0 || length > kMaxNameBytes)
    return broken(
        fmt::format("tensor {} of {} has a name of {} bytes; 1 to {} are possible: the "
                    "tensor table is damaged",
                    index + 1, tensor_count_, length, kMaxNameBytes));
  if (!cursor_.bytes(length, &name)) return cut(where());
  t.name = name;
  if (!cursor_.read(&t.rank)) return cut(where(), t.name);
  if (t.rank > t.shape.size())
    return broken(
        fmt::format("tensor {} has {} dimensions; at most 4 are possible", quoted(t.name), t.rank),
        t.name);
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (!cursor_.read(&t.shape[d])) return cut(where(), t.name);
    if (t.shape[d] < 0)
      return broken(fmt::format("tensor {} has the negative dimension {} ({})", quoted(t.name), d,
                                t.shape[d]),
                    t.name);
  }
  if (!cursor_.read(&t.type) || !cursor_.read(&t.offset)) return cut(where(), t.name);
  return t;
}

// Types before sizes: a size needs a known type, and one message should cover all its tensors.
Result<void> Parser::types() {
  std::map<uint32_t, uint64_t> count;
  for (const Tensor& t : out_.tensors) ++count[t.type];
  for (const Tensor& t : out_.tensors) {
    TypeState state = type_state(t.type);
    if (state == TypeState::known) continue;
    std::string what = fmt::format("{}: tensor {} has type {} ({} of {} tensors have it), ", name_,
                                   quoted(t.name), t.type, count[t.type], out_.tensors.size());
    what += state == TypeState::retired
                ? "which GGUF has retired: convert or quantise the model again with a current tool"
                : "which this version does not know: it is newer, or a fork's own. Update pantheon,"
                  " or take the model in a common type such as Q8_0 or Q4_K_M";
    return fail(Code::unsupported, std::move(what), t.name);
  }
  return {};
}

}  // namespace

Result<Parsed> parse(std::span<const std::byte> image, const std::string& name, bool* incomplete) {
  *incomplete = false;
  return Parser(image, name, incomplete).run();
}

}  // namespace pn::gguf
