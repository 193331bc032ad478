// SPDX-License-Identifier: Apache-2.0
//
// pantheon.load/1: weights put in place by whoever holds the device memory.
//
// Owns the table's form. A plugin behind hal/proxy has it; a plugin in this process need not, since
// the server then converts and copies itself. The one idea: a file descriptor and a range go over,
// and no byte of a weight comes through the server.
#pragma once

#include <pantheon/layout.h>

#define PN_LOAD_ID "pantheon.load/1"

typedef struct pn_load_piece {
  uint32_t struct_size;
  uint32_t reserved;
  const pn_weight* weight;
  uint64_t target;  // pn_device_info.layout_target
  uint64_t layout;
  uint64_t first, count;  // tiles, of
  uint64_t tile_count;
  uint64_t tile_bytes;     // of the layout; the source's own size where there is no layout
  uint64_t source;         // from open(), or 0: the bytes are at `computed`
  uint64_t offset, bytes;  // of the whole tensor in the file
  const void* computed;    // `bytes` of it
  uint64_t plain;          // 1: no layout, a copy
  pn_slice to;             // where tile `first` goes; count * tile_bytes
} pn_load_piece;
PN_PIN(pn_load_piece, 128);

typedef struct pn_load_api {
  uint32_t struct_size, reserved;
  // [any] A file to load from; the descriptor may be closed after return. Until close().
  pn_status (*open)(int32_t fd, uint64_t bytes, uint64_t* source, pn_error*);
  void (*close)(uint64_t source);
  // [any] Several at once. Blocks until the bytes are in place. Fails: what layout.convert said;
  // PN_FAILED when the file cannot be read there any more.
  pn_status (*place)(pn_device, const pn_load_piece*, pn_error*);
} pn_load_api;
PN_PIN(pn_load_api, 32);
