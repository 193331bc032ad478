# SPDX-License-Identifier: Apache-2.0
"""Paired rounds and markdown tables: what the perf scripts share.

Shared machines drift by tens of per cent between spells. So programs are run in turn, the order turns
with every round, and medians with 10th percentiles are shown, never a best of.
"""
import os
import platform
import statistics
import subprocess
import sys


def run(command, env=None, timeout=1800):
    full = dict(os.environ, **(env or {}))
    done = subprocess.run(command, env=full, capture_output=True, text=True, timeout=timeout,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def shell_line(command, env=None):
    """As a reader would type it."""
    words = [f"{k}={v}" for k, v in (env or {}).items()]
    return " ".join(words + [os.path.relpath(w) if os.path.isabs(w) else w for w in command])


def rounds(count, sides):
    """sides: [(name, function -> {figure: value})]; {name: {figure: [value a round]}}"""
    out = {name: {} for name, _ in sides}
    for number in range(count):
        turn = sides if number % 2 == 0 else sides[::-1]
        for name, measure in turn:
            for figure, value in measure().items():
                out[name].setdefault(figure, []).append(value)
        print(f"  round {number + 1} of {count}", file=sys.stderr, flush=True)
    return out


def median(values):
    return statistics.median(values)


def tenth(values):
    """10th percentile, the value that 90 % of the rounds reached."""
    ordered = sorted(values)
    return ordered[max(0, round(0.1 * (len(ordered) - 1)))]


def cell(values, form="{:.1f}"):
    return f"{form.format(median(values))} ({form.format(tenth(values))})"


def ratio(ours, theirs):
    """Median over the rounds of ours / theirs of the same round."""
    return median([a / b for a, b in zip(ours, theirs)])


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(c) for c in row) + " |")
    print(flush=True)


def host():
    name = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    pages = "/sys/kernel/mm/transparent_hugepage/enabled"
    mode = ""
    if os.path.exists(pages):
        with open(pages, encoding="ascii") as file:
            mode = file.read().split("[")[1].split("]")[0]
    return f"{name}, {os.cpu_count()} processors, transparent huge pages {mode or 'absent'}"
