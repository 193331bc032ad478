// SPDX-License-Identifier: Apache-2.0
//
// Weights in the backend host: read from the file, converted by the plugin, put where they belong.
//
// Owns the mapped files, and per device the staging and the TRANSFER queue that a die without host
// address needs. Knows pieces, not models. Each bulk thread of the backend host places one piece at
// a time.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "hal/host/load.h"
#include "hal/proxy/objects.h"

namespace pn::proxy {

struct HostFile {
  const std::byte* at = nullptr;
  uint64_t bytes = 0;
  ~HostFile();
};

class HostLoad {
 public:
  // control: held around [control] calls of the plugin, by everybody.
  HostLoad(Objects& objects, std::mutex& control) : objects_(objects), control_(control) {}

  pn_status open(Fd fd, uint64_t bytes, uint64_t* source, pn_error* err);
  // The last file gives the staging back, too.
  void close(uint64_t source);
  // device: the server's handle. piece.computed is set when piece.source is 0.
  pn_status place(uint64_t device, const pn_load_piece& piece, pn_error* err);
  void device_closed(uint64_t device);

 private:
  struct Transfer;  // of one device
  struct Stage {
    pn_buffer buffer{};
    std::byte* at = nullptr;
    uint64_t bytes = 0;
  };
  pn_status convert(const pn_load_piece& piece, const std::byte* source, std::byte* out,
                    pn_error* err) const;
  pn_status stage(uint64_t device, const pn_load_piece& piece, const std::byte* source,
                  pn_error* err);
  std::shared_ptr<Transfer> transfer_of(uint64_t device, pn_error* err);
  pn_status take_stage(Transfer& transfer, uint64_t bytes, Stage* out, pn_error* err);
  pn_status send(Transfer& transfer, const Stage& stage, const pn_slice& to, pn_error* err);

  Objects& objects_;
  std::mutex& control_;
  Table<HostFile> files_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Transfer>> transfers_;
};

}  // namespace pn::proxy
