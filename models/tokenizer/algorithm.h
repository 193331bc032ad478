// SPDX-License-Identifier: Apache-2.0
//
// What the tokenizer asks of SPM and BPE, and the merging that both are made of.
//
// merge_pairs() joins the best adjacent pair until none is left: a heap of 64-bit keys (how good,
// then where) over a linked list. Each place knows how good its pair is now, so outdated heap
// entries are recognised without being searched for. 2^20 equal letters take about n log n steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pn::tok {

using TokenIds = std::unordered_map<std::string_view, int32_t>;

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // Text between special tokens (or the ends of the whole text), valid UTF-8, not empty.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  // The bytes of a token that is neither control nor byte.
  virtual void append_piece(std::string_view token, std::string& out) const = 0;
};

struct Node {
  static constexpr uint32_t kNone = UINT32_MAX;  // as a key: no pair; as a place: no neighbour

  uint32_t value;           // of the algorithm: a symbol or token
  uint32_t start;           // offset of its first byte
  uint32_t prev, next;      // places
  uint32_t key = kNone;     // of the pair with next; lower is better
  uint32_t merged = kNone;  // value of the pair when joined
};

struct Pair {
  uint32_t key = Node::kNone;
  uint32_t merged = Node::kNone;
};

// find(left, right) -> Pair, for places of `nodes`. Afterwards follow .next from place 0.
template <typename Find>
void merge_pairs(std::vector<Node>& nodes, std::vector<uint64_t>& heap, Find&& find) {
  auto look = [&](uint32_t left) {
    Node& node = nodes[left];
    Pair pair = node.next == Node::kNone ? Pair{} : find(left, node.next);
    node.key = pair.key;
    node.merged = pair.merged;
    return pair.key != Node::kNone;
  };
  heap.clear();
  for (uint32_t i = 0; i < nodes.size(); i++) {
    if (look(i)) heap.push_back(uint64_t(nodes[i].key) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  auto push = [&](uint32_t left) {
    if (!look(left)) return;
    heap.push_back(uint64_t(nodes[left].key) << 32 | left);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    uint64_t best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    uint32_t at = uint32_t(best);
    Node& left = nodes[at];
    if (left.key == Node::kNone || left.key != best >> 32) continue;
    Node& right = nodes[left.next];
    left.value = left.merged;
    left.next = right.next;
    right.key = Node::kNone;
    if (left.next != Node::kNone) nodes[left.next].prev = at;
    push(at);
    if (left.prev != Node::kNone) push(left.prev);
  }
}

}  // namespace pn::tok
