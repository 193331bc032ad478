// SPDX-License-Identifier: Apache-2.0
//
// pantheon-backend-host: runs one plugin for a server that keeps it at arm's length.
//
//   pantheon-backend-host PLUGIN SERVER_PID      with the server's socket as descriptor 3
//
// Started by the server, never by a person. Ends with the server: by the kernel's signal, and when
// the socket ends. Signals that are meant for the server (a service being stopped, Ctrl-C) do not
// end it: the server first lets its answers end.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "hal/proxy/backend_log.h"
#include "hal/proxy/host_server.h"

namespace {

constexpr int kChannelFd = 3;

void log_line(uint32_t level, const std::string&, const char* text) {
  std::string line = {pn::proxy::kLogMark, static_cast<char>('0' + level)};
  line += text;
  for (size_t i = 2; i < line.size(); ++i)
    if (line[i] == '\n') line[i] = ' ';
  line += '\n';
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "pantheon-backend-host is started by pantheon (isolation: process)\n");
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != static_cast<pid_t>(std::strtol(argv[2], nullptr, 10))) return 3;
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(each, SIG_IGN);
  pn::hal::set_log_sink(log_line);
  // Never destroyed: threads of it and of the plugin run until the process ends.
  auto* server = new pn::proxy::HostServer(pn::proxy::Fd(kChannelFd));
  server->run();
  ::_exit(0);
}
