#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompt and decode speed, paired with llama.cpp in its better mode; prints markdown tables.

llama_pair.py PANTHEON --llama-bin DIR MODEL...   DIR holds llama-bench, built with native flags.
The mode of llama.cpp (memory-mapped or not, the C library's huge pages or not) is chosen for each
model and figure by a few rounds before the paired ones; each of the four is printed.
"""
import argparse
import json
import os
import sys

import pairs

MODES = {
    "mmap": (["-mmp", "1"], {}),
    "no mmap": (["-mmp", "0"], {}),
    "no mmap, huge pages": (["-mmp", "0"], {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    "mmap, huge pages": (["-mmp", "1"], {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
}


class Llama:
    def __init__(self, args, model):
        self.args, self.model = args, model

    def command(self, mode, prompt, decode):
        return [os.path.join(self.args.llama_bin, "llama-bench"), "-m", self.model, "-t",
                str(self.args.threads), "-p", str(prompt), "-n", str(decode), "-r", "1", "-ngl", "0",
                "-o", "json", *MODES[mode][0]]

    def measure(self, mode, prompt, decode):
        text = pairs.run(self.command(mode, prompt, decode), MODES[mode][1])
        entries = json.loads(text)
        return {("prompt" if e["n_prompt"] else "decode"): e["avg_ts"] for e in entries}

    def best_modes(self, rounds):
        """{figure: mode} by median; prints what each mode gave."""
        tried = {mode: {} for mode in MODES}
        for _ in range(rounds):
            for mode in MODES:
                for figure, value in self.measure(mode, self.args.prompt, self.args.decode).items():
                    tried[mode].setdefault(figure, []).append(value)
        rows = [[mode, pairs.cell(f["prompt"]), pairs.cell(f["decode"])]
                for mode, f in tried.items()]
        pairs.table(["llama.cpp mode", "prompt", "decode"], rows)
        return {figure: max(MODES, key=lambda m: pairs.median(tried[m][figure]))
                for figure in ("prompt", "decode")}


def ours_command(args, model):
    command = [args.pantheon, "bench", model, "--threads", str(args.threads), "--prompt-tokens",
               str(args.prompt), "--decode-tokens", str(args.decode), "--rounds", "1", "--json"]
    return command


def measure_ours(args, model):
    found = json.loads(pairs.run(ours_command(args, model)))
    return {figure: found[figure]["tokens_per_s"] for figure in ("prompt", "decode")}


def compare(args, model):
    print(f"### {os.path.basename(model)}\n")
    llama = Llama(args, model)
    modes = llama.best_modes(args.mode_rounds)

    def theirs():
        out = llama.measure(modes["prompt"], args.prompt, 0)
        out.update(llama.measure(modes["decode"], 0, args.decode))
        return out

    found = pairs.rounds(args.rounds, [("ours", lambda: measure_ours(args, model)),
                                       ("llama.cpp", theirs)])
    rows, good = [], True
    for figure in ("prompt", "decode"):
        ours, other = found["ours"][figure], found["llama.cpp"][figure]
        times = pairs.ratio(ours, other)
        good = good and times >= args.least
        rows.append([f"{figure} {getattr(args, figure)}", pairs.cell(ours), pairs.cell(other),
                     modes[figure], f"{times:.2f}"])
    pairs.table(["tokens/s: median (10th percentile)", "Pantheon", "llama.cpp", "its mode",
                 "times"], rows)
    print("    " + pairs.shell_line(ours_command(args, model)))
    for figure, sizes in (("prompt", (args.prompt, 0)), ("decode", (0, args.decode))):
        print("    " + pairs.shell_line(llama.command(modes[figure], *sizes),
                                        MODES[modes[figure]][1]))
    print(flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pantheon")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama-bin", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mode-rounds", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--least", type=float, default=1.25, help="exit 1 below this many times")
    args = parser.parse_args()
    if args.rounds < 9:
        print("fewer than 9 rounds say little on a shared machine", file=sys.stderr)
    print(f"{pairs.host()}; {args.threads} threads, {args.rounds} rounds\n")
    good = [compare(args, model) for model in args.models]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
