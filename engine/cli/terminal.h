// SPDX-License-Identifier: Apache-2.0
//
// What commands print: answers to stdout, everything else to stderr, progress that suits the
// reader.
//
// Owns the terminal and the interrupt flag. Only the answer goes to stdout. Progress is one moving
// line on a terminal and a line a tenth elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "hal/host/result.h"

namespace pn::cli {

void print_out(const std::string& text);  // stdout, flushed
void print_err(const std::string& text);  // stderr, a line break is added when missing
// "pantheon: message"; as a JSON line with --log-json.
void log_line(bool json, const char* level, const std::string& text);
int report(const Error& error);  // prints it and gives the exit code for its kind

std::string bytes_text(uint64_t bytes);  // "1.1 GiB"

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void update(uint64_t done, uint64_t total);  // bytes

 private:
  std::string what_;
  bool terminal_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int last_tenth_ = -1;
  bool drawn_ = false;
};

// Ctrl-C as a flag: install once, then ask. A second Ctrl-C while the flag is set ends the process.
void catch_interrupts();
bool interrupted();
void clear_interrupt();
// A line of standard input without its end. false: no more, or Ctrl-C came (see interrupted()).
bool read_line(std::string& line);

}  // namespace pn::cli
