#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode speed through `pantheon serve` against `pantheon bench`, in paired rounds.

serve_pair.py PANTHEON MODEL [--threads N] [--rounds N]. The server's figure is a client's: tokens
between the first and the last event of a stream, by the client's clock.
"""
import argparse
import json
import os
import sys
import time

import pairs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness  # noqa: E402


def by_bench(args):
    command = [args.pantheon, "bench", args.model, "--threads", str(args.threads),
               "--prompt-tokens", str(args.prompt), "--decode-tokens", str(args.decode),
               "--rounds", "1", "--json"]
    return {"decode": json.loads(pairs.run(command))["decode"]["tokens_per_s"]}


def by_serve(args, server):
    body = {"prompt": [7 + i % 400 for i in range(args.prompt)], "max_tokens": args.decode + 1,
            "ignore_eos": True, "temperature": 0, "logprobs": 0}
    first = last = tokens = 0
    for event in server.stream("/v1/completions", body):
        now = time.monotonic()
        found = event != "[DONE]" and event["choices"] and event["choices"][0]["logprobs"]
        if not found:
            continue
        tokens += len(found["tokens"])
        first, last = first or now, now
        if tokens == len(found["tokens"]):
            begun = tokens  # they came with the first event and took no time after it
    assert tokens == args.decode + 1, tokens
    return {"decode": (tokens - begun) / (last - first)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pantheon")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--least", type=float, default=0.97, help="exit 1 below this share")
    args = parser.parse_args()

    def serve():
        # One at a time: two copies of the weights would not fit everywhere, nor compare fairly.
        with harness.Folder() as folder:
            with harness.Server(args.pantheon, folder, ["--model", args.model, "--threads",
                                                        str(args.threads)]) as server:
                by_serve(args, server)
                return by_serve(args, server)

    found = pairs.rounds(args.rounds, [("bench", lambda: by_bench(args)), ("serve", serve)])
    bench, served = found["bench"]["decode"], found["serve"]["decode"]
    share = pairs.ratio(served, bench)
    print(f"{pairs.host()}; {args.threads} threads, {args.rounds} rounds\n")
    pairs.table(["decode, tokens/s: median (10th percentile)", "bench", "serve", "share"],
                [[os.path.basename(args.model), pairs.cell(bench), pairs.cell(served),
                  f"{share:.3f}"]])
    return 0 if share >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
