// SPDX-License-Identifier: Apache-2.0
//
// Growth of the ABI over two imagined minors: a struct of 0.n and the same struct of 0.n+1, read
// and written by the other side, alone and in arrays, with guard bytes around.
#include <doctest/doctest.h>
#include <pantheon/core.h>

#include <cstring>
#include <utility>
#include <vector>

namespace {

struct Old {
  uint32_t struct_size;
  uint32_t a;
  uint64_t b;
};
struct New {
  uint32_t struct_size;
  uint32_t a;
  uint64_t b;
  uint64_t c;  // absent means 0
};
constexpr uint32_t kFirstSize = sizeof(Old);  // the frozen first size of both

// As over a library border: the compiler sees addresses, not the objects behind them.
__attribute__((noinline)) int read(void* to, uint32_t known, const void* from, uint32_t min_size) {
  asm volatile("" : "+r"(to), "+r"(from));
  return pn_read(to, known, from, min_size);
}
__attribute__((noinline)) void write(void* to, const void* from, uint32_t known) {
  asm volatile("" : "+r"(to), "+r"(from));
  pn_write(to, from, known);
}
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}

}  // namespace

TEST_CASE("an old caller is understood by a new reader: absent fields are zero") {
  Old from{sizeof from, 7, 9};
  New to;
  std::memset(&to, 0xee, sizeof to);
  REQUIRE(read(&to, sizeof to, &from, kFirstSize) == 1);
  CHECK(to.struct_size == sizeof to);
  CHECK(to.a == 7);
  CHECK(to.b == 9);
  CHECK(to.c == 0);
  CHECK(PN_HAS(&from, Old, b));
  CHECK_FALSE(PN_HAS(as<New>(&std::as_const(from)), New, c));
}

TEST_CASE("a new caller is understood by an old reader only when it says nothing new") {
  New from{sizeof from, 7, 9, 0};
  Old to;
  REQUIRE(read(&to, sizeof to, &from, kFirstSize) == 1);
  CHECK(to.a == 7);
  from.c = uint64_t{1} << 63;  // the last byte counts too
  CHECK(read(&to, sizeof to, &from, kFirstSize) == 0);
  from.c = 0;
  from.struct_size = sizeof(Old) - 8;  // shorter than it ever was
  CHECK(read(&to, sizeof to, &from, kFirstSize) == 0);
  from.struct_size = sizeof(New) - 3;  // no size of any minor
  CHECK(read(&to, sizeof to, &from, kFirstSize) == 0);
}

TEST_CASE("writing: both know, the rest zero, the caller's size and what follows untouched") {
  struct {
    New caller;
    uint64_t guard;
  } room;
  std::memset(&room, 0xee, sizeof room);
  room.caller.struct_size = sizeof(New);
  const Old small{sizeof small, 1, 2};
  write(&room.caller, &small, sizeof small);  // an old plugin, a new host
  CHECK(room.caller.struct_size == sizeof(New));
  CHECK(room.caller.b == 2);
  CHECK(room.caller.c == 0);
  CHECK(room.guard == 0xeeeeeeeeeeeeeeeeull);

  std::memset(&room, 0xee, sizeof room);
  room.caller.struct_size = sizeof(Old);
  const New large{sizeof large, 1, 2, 3};
  write(&room.caller, &large, sizeof large);  // a new plugin, an old host
  CHECK(room.caller.struct_size == sizeof(Old));
  CHECK(room.caller.b == 2);
  CHECK(room.caller.c == 0xeeeeeeeeeeeeeeeeull);  // not the caller's: not written
}

TEST_CASE("arrays are walked by the caller's stride in all four pairings") {
  std::vector<New> host_new(3);
  for (New& e : host_new) e.struct_size = sizeof(New);
  for (uint32_t i = 0; i < 3; ++i) {  // an old plugin fills a new host's array
    const Old value{sizeof value, i + 1, i + 10};
    write(PN_AT(Old, as<Old>(host_new.data()), i), &value, sizeof value);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(host_new[i].a == i + 1);
    CHECK(host_new[i].b == i + 10);
    CHECK(host_new[i].struct_size == sizeof(New));
  }
  std::vector<Old> host_old(3);
  for (Old& e : host_old) e.struct_size = sizeof(Old);
  for (uint32_t i = 0; i < 3; ++i) {  // a new plugin fills an old host's array
    const New value{sizeof value, i + 1, i + 10, 99};
    write(PN_AT(New, as<New>(host_old.data()), i), &value, sizeof value);
  }
  for (uint32_t i = 0; i < 3; ++i) CHECK(host_old[i].b == i + 10);
  for (uint32_t i = 0; i < 3; ++i) {  // and reads them
    New value;
    REQUIRE(read(&value, sizeof value, PN_AT_CONST(New, as<New>(std::as_const(host_old).data()), i),
                 kFirstSize) == 1);
    CHECK(value.a == i + 1);
    CHECK(value.c == 0);
  }
}
