// SPDX-License-Identifier: Apache-2.0
//
// Reads the machine. Knows Linux's files and nothing else of the plugin. See machine.h.
#include "backends/cpu/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

namespace pn::cpu {
namespace {

// The first bytes of a small file, NUL-terminated; 0 when it cannot be read.
size_t read_file(const char* path, char* out, size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out[0] = 0, 0;
  size_t have = 0;
  while (have + 1 < room) {
    const ssize_t got = read(fd, out + have, room - 1 - have);
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  close(fd);
  out[have] = 0;
  return have;
}

// The number after `key` in "key: 123 kB" lines; 0 when absent.
uint64_t field_kib(const char* text, const char* key) {
  const char* at = strstr(text, key);
  return at == nullptr ? 0 : strtoull(at + strlen(key), nullptr, 10);
}

int read_int(const std::string& path, int otherwise) {
  char text[64];
  return read_file(path.c_str(), text, sizeof(text)) == 0 ? otherwise : atoi(text);
}

// "0-3,8" as numbers.
std::vector<int> parse_list(const char* text) {
  std::vector<int> out;
  while (*text >= '0' && *text <= '9') {
    char* end = nullptr;
    const long first = strtol(text, &end, 10);
    const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    for (long i = first; i <= last && i - first < CPU_SETSIZE; ++i)
      out.push_back(static_cast<int>(i));
    text = *end == ',' ? end + 1 : end;
  }
  return out;
}

std::string cpu_model() {
  char text[4096];
  read_file("/proc/cpuinfo", text, sizeof(text));
  const char* at = strstr(text, "model name");
  if (at != nullptr) at = strchr(at, ':');
  if (at == nullptr) return "x86-64 CPU";
  at += at[1] == ' ' ? 2 : 1;
  return std::string(at, strcspn(at, "\n"));
}

void add_cpu(NumaNode* node, int cpu, std::set<std::pair<int, int>>* seen) {
  const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
  const int package = read_int(base + "physical_package_id", 0);
  const int core = read_int(base + "core_id", cpu);
  node->cpus.push_back(cpu);
  if (seen->insert({package, core}).second) node->cores.push_back(cpu);
}

uint64_t node_total(int id) {
  char text[2048];
  const std::string path = "/sys/devices/system/node/node" + std::to_string(id) + "/meminfo";
  read_file(path.c_str(), text, sizeof(text));
  return field_kib(text, "MemTotal:") << 10;
}

// The cgroup's limit and what it holds now; limit 0 when there is none (v2, then v1).
void read_cgroup(uint64_t* limit, uint64_t* used) {
  char text[64];
  *limit = *used = 0;
  for (const char* base :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (read_file(base, text, sizeof(text)) == 0 || text[0] == 'm') continue;
    *limit = strtoull(text, nullptr, 10);
    const bool v2 = strstr(base, "memory.max") != nullptr;
    const char* current =
        v2 ? "/sys/fs/cgroup/memory.current" : "/sys/fs/cgroup/memory/memory.usage_in_bytes";
    if (read_file(current, text, sizeof(text)) != 0) *used = strtoull(text, nullptr, 10);
    const char* stat = v2 ? "/sys/fs/cgroup/memory.stat" : "/sys/fs/cgroup/memory/memory.stat";
    char stats[4096];
    read_file(stat, stats, sizeof(stats));
    // Clean file pages are given back on demand, so they do not count as taken.
    const uint64_t cached = field_kib(stats, "inactive_file ");
    *used -= std::min(*used, cached);
    return;
  }
}

}  // namespace

Machine read_machine() {
  Machine machine;
  machine.model = cpu_model();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) CPU_SET(0, &allowed);

  char text[4096];
  read_file("/sys/devices/system/node/online", text, sizeof(text));
  for (int id : parse_list(text)) {
    NumaNode node;
    node.id = id;
    std::set<std::pair<int, int>> seen;
    const std::string path = "/sys/devices/system/node/node" + std::to_string(id) + "/cpulist";
    read_file(path.c_str(), text, sizeof(text));
    for (int cpu : parse_list(text))
      if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) add_cpu(&node, cpu, &seen);
    node.total_bytes = node_total(id);
    if (!node.cpus.empty()) machine.nodes.push_back(std::move(node));
  }
  if (machine.nodes.empty()) {
    NumaNode node;
    std::set<std::pair<int, int>> seen;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) add_cpu(&node, cpu, &seen);
    machine.nodes.push_back(std::move(node));
  }
  for (NumaNode& node : machine.nodes)
    if (node.total_bytes == 0) node.total_bytes = read_host_memory().total;
  return machine;
}

NumaNode whole_machine(const Machine& machine) {
  NumaNode all;
  if (machine.nodes.size() == 1) all.id = machine.nodes[0].id;
  for (const NumaNode& node : machine.nodes) {
    all.cores.insert(all.cores.end(), node.cores.begin(), node.cores.end());
    all.cpus.insert(all.cpus.end(), node.cpus.begin(), node.cpus.end());
    all.total_bytes += node.total_bytes;
  }
  return all;
}

HostMemory read_host_memory() {
  char text[2048];
  HostMemory memory;
  read_file("/proc/meminfo", text, sizeof(text));
  memory.total = field_kib(text, "MemTotal:") << 10;
  memory.available = field_kib(text, "MemAvailable:") << 10;
  uint64_t limit = 0, used = 0;
  read_cgroup(&limit, &used);
  if (limit != 0 && limit < memory.total) {
    memory.total = limit;
    memory.available = std::min(memory.available, limit - std::min(limit, used));
  }
  // statm: size resident shared ... in pages; resident - shared is anonymous.
  read_file("/proc/self/statm", text, sizeof(text));
  unsigned long long size = 0, resident = 0, shared = 0;
  if (sscanf(text, "%llu %llu %llu", &size, &resident, &shared) == 3 && resident > shared)
    memory.own_anon = (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return memory;
}

}  // namespace pn::cpu
