// SPDX-License-Identifier: Apache-2.0
//
// The CPU plugin in a test's hands: loaded through its own entry, with plans bound and steps run.
//
// Owns the plugin while it lives (one at a time a process), buffers and programs. Knows the ABI and
// no insides of the plugin, so what is tested is what a host sees.
#pragma once

#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/sampler.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace pn::test {

using HostOptions = std::map<std::string, std::string>;

pn_error new_error();

class CpuHost {
 public:
  // options: pairs for the profile. Fails the test when the plugin refuses.
  explicit CpuHost(const HostOptions& options = {}, uint32_t die = 0);
  ~CpuHost();
  CpuHost(const CpuHost&) = delete;
  CpuHost& operator=(const CpuHost&) = delete;

  const pn_plugin& api() const { return *api_; }
  const pn_layout_api& layout() const { return *layout_; }
  pn_device device() const { return device_; }
  pn_queue queue() const { return queue_; }
  template <typename T>
  const T* interface(const char* id) const {
    return static_cast<const T*>(api_->get_interface(id));
  }

  struct Memory {
    pn_buffer buffer = {};
    std::byte* host = nullptr;
    uint64_t bytes = 0;
    pn_slice slice(uint64_t offset = 0, uint64_t size = 0) const {
      return {buffer, offset, size == 0 ? bytes - offset : size};
    }
  };
  Memory allocate(uint64_t bytes, uint32_t heap = 0);  // lives as long as the host

  // Submits one command and waits; the status of the submit, or of the queue when that failed.
  pn_status submit(const pn_command& command, const pn_step* step, std::string* message = nullptr);

 private:
  const pn_plugin* api_ = nullptr;
  const pn_layout_api* layout_ = nullptr;
  pn_device device_ = {};
  pn_queue queue_ = {};
  uint64_t value_ = 0;
  std::vector<Memory> memory_;
};

// Puts a plan together; ids are indices as the ABI wants them.
struct PlanBuilder {
  std::vector<pn_op> ops;
  std::vector<pn_slot> slots;
  std::vector<pn_weight> weights;
  std::vector<std::vector<std::byte>> bytes;  // of each weight, as in a file
  std::vector<pn_cache> caches;
  std::vector<pn_shape> shapes;
  std::vector<std::vector<std::byte>> params;
  uint32_t lanes = 1, ids_depth = 1;

  uint16_t slot(uint32_t width, uint32_t kind = PN_SLOT_INTERNAL, uint32_t rows = PN_ROWS_TOKENS,
                uint32_t type = PN_TYPE_F32);
  uint16_t weight(uint32_t role, uint32_t type, std::vector<int64_t> shape,
                  std::vector<std::byte> data);
  uint16_t matrix(int64_t cols, int64_t rows, const std::vector<float>& values,
                  uint32_t role = PN_ROLE_MATRIX, int64_t experts = 1);  // F32
  uint16_t vector(const std::vector<float>& values, uint32_t role = PN_ROLE_VECTOR);
  template <typename T>
  pn_op& op(uint16_t kind, T p) {
    p.struct_size = sizeof(T);
    const auto* raw = reinterpret_cast<const std::byte*>(&p);
    return add(kind, std::vector<std::byte>(raw, raw + sizeof(T)));
  }
  pn_op& op(uint16_t kind) { return add(kind, {}); }
  pn_plan view();

 private:
  pn_op& add(uint16_t kind, std::vector<std::byte> p);
};

// A plan compiled and bound, with room for pages and rows.
class CpuProgram {
 public:
  CpuProgram(CpuHost& host, PlanBuilder& plan, uint32_t pages = 0);

  // One run; entries and rows as given. Returns the status of submit or queue.
  pn_status run(const pn_step& step, uint32_t shape = 0, std::string* message = nullptr);
  pn_status sample(const pn_step& step, std::string* message = nullptr);
  float* slot(uint16_t index);  // host address of a bound slot
  int32_t* ids() { return reinterpret_cast<int32_t*>(ids_.host); }
  const CpuHost::Memory& results() const { return results_; }
  CpuHost::Memory cache(uint32_t index) const { return caches_[index]; }
  pn_report report() const { return report_; }
  pn_program handle() const { return program_; }
  CpuHost& host() { return host_; }

 private:
  CpuHost& host_;
  pn_program program_ = {};
  pn_report report_ = {};
  std::map<uint32_t, CpuHost::Memory> slots_;
  std::vector<CpuHost::Memory> caches_;
  CpuHost::Memory ids_, results_;
};

// A step from vectors; page edits and lanes optional.
struct Steps {
  std::vector<int32_t> tokens;
  std::vector<pn_lane> lanes;
  std::vector<pn_pages> pages;
  std::vector<pn_entry> entries;
  std::vector<pn_row> rows;
  pn_step view() const;
  void entry(uint32_t lane, uint32_t position, const std::vector<int32_t>& ids);
  pn_row& row(uint32_t entry, uint32_t token, uint32_t flags, const pn_slice& target);
  pn_lane& lane(uint32_t number, float temperature = 0);
};

pn_status query(CpuHost& host, PlanBuilder& plan, pn_report* report, std::vector<pn_span>* spans);

std::vector<float> random_values(uint64_t count, uint64_t seed, float scale = 1.0f);

}  // namespace pn::test
