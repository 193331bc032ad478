#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An idle server sleeps: below 1 % of one core over 5 seconds, fresh and after requests."""
import os
import sys
import time

import harness

SECONDS = 5


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(server):
    before = cpu_seconds(server.process.pid)
    time.sleep(SECONDS)
    return (cpu_seconds(server.process.pid) - before) / SECONDS


def main():
    cases = harness.Cases()
    if harness.SANITIZED:
        cases.skip(f"a {harness.SANITIZER} build has threads of its own")
        cases.finish()
    with harness.Folder() as folder:
        with harness.Server(sys.argv[1], folder, ["--model", harness.DEMO]) as server:
            for what in ("fresh", "after requests"):
                with cases.case(f"idle, {what}"):
                    used = share(server)
                    print(f"  {used * 100:.2f} % of a core")
                    assert used < 0.01, used
                    server.chat("Tell me a story.", max_tokens=60)
    cases.finish()


if __name__ == "__main__":
    main()
