#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From start to ready, against reading the file: with a cold page cache and with a warm one.

load_time.py PANTHEON MODEL [--rounds N]. Reading is dd's: sequential, into nothing. A cold cache
needs root (/proc/sys/vm/drop_caches) or a file system that obeys POSIX_FADV_DONTNEED; whether the
file really left the cache is asked with mincore, and a cold figure that was warm is not printed.
"""
import argparse
import ctypes
import mmap
import os
import sys
import time

import pairs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness  # noqa: E402


def cached_share(path):
    """How much of the file is in the page cache, 0 to 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = os.path.getsize(path)
    pages = -(-size // mmap.PAGESIZE)
    with open(path, "rb") as file:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        seen = ctypes.create_string_buffer(pages)
        code = libc.mincore(at, size, seen)
        libc.munmap(at, size)
    return sum(b & 1 for b in seen.raw) / pages if code == 0 else 1.0


def drop(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("1\n")
    except OSError:
        pass  # not root: what fadvise did is judged by cached_share
    return cached_share(path) < 0.02


def read_s(path):
    start = time.monotonic()
    buffer = bytearray(4 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.monotonic() - start


def ready_s(args):
    with harness.Folder() as folder:
        start = time.monotonic()
        with harness.Server(args.pantheon, folder, ["--model", args.model, "--threads",
                                                    str(args.threads)], wait=False) as server:
            server.wait_ready(600)
            spent = time.monotonic() - start
            server.complete([7], max_tokens=1)
        return spent


def measure(args, action, cold):
    if cold and not drop(args.model):
        return {}
    if not cold:
        read_s(args.model)
    return {"s": action()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pantheon")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    size = os.path.getsize(args.model)
    print(f"{pairs.host()}; {args.threads} threads, {args.rounds} rounds, "
          f"{size / 1e9:.2f} GB\n")
    rows, good = [], True
    for name, cold in (("cold", True), ("warm", False)):
        found = pairs.rounds(args.rounds, [
            ("read", lambda: measure(args, lambda: read_s(args.model), cold)),
            ("ready", lambda: measure(args, lambda: ready_s(args), cold))])
        read, ready = found["read"].get("s", []), found["ready"].get("s", [])
        if not read or len(read) != len(ready):
            print(f"{name}: not measured, the file could not be put out of the page cache\n")
            continue
        times = pairs.ratio(ready, read)
        good = good and (times <= 1.5 if cold else pairs.median(ready) <= 1.0)
        rows.append([name, pairs.cell(read, "{:.2f}"), pairs.cell(ready, "{:.2f}"),
                     f"{times:.2f}", "1.5 times" if cold else "1 s"])
    pairs.table(["cache", "reading the file, s", "start to ready, s", "times", "limit"], rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
