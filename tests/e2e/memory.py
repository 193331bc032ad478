#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RssAnon + RssShmem stays within weights + KV + 150 MiB, through load, prompts and decoding.

Sampled every few milliseconds, on a model that is large enough for a second copy of its weights to
break the limit.
"""
import sys
import threading
import time

import harness

MIB = 1 << 20
SPARE = 150 * MIB


class Sampler(threading.Thread):
    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.peak, self.samples, self.going = server, 0, 0, True

    def run(self):
        while self.going:
            try:
                now = self.server.status("RssAnon") + self.server.status("RssShmem")
            except (AssertionError, OSError):
                return
            self.peak = max(self.peak, now)
            self.samples += 1
            time.sleep(0.003)


def check(exe, folder, kind, layers, cases):
    path = harness.make_gguf(exe, folder, "small", kind, "--layers", layers)
    # A small KV cache: what is counted and not yet touched would leave room for a mistake.
    args = ["--model", path, "--context", "512", "--slots", "1"]
    with harness.Server(exe, folder, args, wait=False) as server:
        sampler = Sampler(server)
        sampler.start()
        with cases.case(f"{kind}: load, prompts, decode"):
            server.wait_ready(120)
            loaded = sampler.peak
            server.complete([7 + i % 400 for i in range(400)], max_tokens=32, ignore_eos=True)
            server.complete("Once", max_tokens=64, ignore_eos=True, temperature=1)
            sampler.going = False
            sampler.join()
            meta = server.get("/v1/models").json()["data"][0]["meta"]
            counted = meta["weight_bytes"] + meta["kv_bytes"]
            print(f"  {kind}: weights {meta['weight_bytes'] / MIB:.0f} MiB, KV "
                  f"{meta['kv_bytes'] / MIB:.0f} MiB, peak {sampler.peak / MIB:.0f} MiB (load "
                  f"{loaded / MIB:.0f}), {sampler.samples} samples")
            assert meta["weight_bytes"] > SPARE, "the model is too small to show anything"
            assert sampler.samples > 50, sampler.samples
            assert sampler.peak <= counted + SPARE, (sampler.peak, counted)


def main():
    cases = harness.Cases()
    if harness.SANITIZED:
        cases.skip(f"a {harness.SANITIZER} build has memory of its own")
        cases.finish()
    with harness.Folder() as folder:
        for kind, layers in (("Q8_0", "56"), ("Q4_K_M", "96")):
            check(sys.argv[1], folder, kind, layers, cases)
    cases.finish()


if __name__ == "__main__":
    main()
