#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""red_table.py PANTHEON MUTANTS.LIST MUTANTS_DIR: each mutant, and the check that catches it.

The checks are checked: every defect of the list must fail the case that it names, the same plugin
without a defect must pass all of them, and a case that no defect fails must be listed here with the
reason. A check that cannot fail is worse than none.
"""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness  # noqa: E402  (beside the e2e tests, not installed)

# Cases that no mutant can fail, and why.
WITHOUT = {
    "ops/conv": "the reference has no CONV, so the case is unsupported everywhere",
    "ops/delta_net": "the reference has no DELTA_NET, so the case is unsupported everywhere",
    "perf/table": "figures for a person: it never fails",
}
# Their defect lies past what --quick looks at.
WHOLE = {"ops/attention_long"}


def mutants(path):
    """(name, what, case, file or "") of each line"""
    with open(path, encoding="ascii") as file:
        for line in file:
            parts = [part.strip() for part in line.split("|")]
            if not line.startswith("#") and len(parts) >= 3:
                yield (*parts, "")[:4]


def check(exe, folder, plugin, args):
    """The JSON of one `plugin check`; exit code 1 is a caught defect."""
    done = harness.run(exe, ["plugin", "check", plugin, "--json", *args], folder, seconds=300)
    assert done.code in (0, 1), f"exit code {done.code}: {done.err[-2000:]}"
    return json.loads(done.out)


def try_mutant(exe, folder, plugins, mutant):
    name, _, case, file = mutant
    args = ["--only", case] + ([] if case in WHOLE else ["--quick"])
    if not file:
        args += ["--option", f"mutant={name}"]
    found = check(exe, folder, os.path.join(plugins, file or "backend_mutants.so"), args)["cases"]
    assert [one["name"] for one in found] == [case], f"{case} is no case: {found}"
    return found[0]


def one_line(text):
    line = " ".join(text.split())
    return line if len(line) <= 110 else line[:107] + "..."


def red(exe, folder, plugins, listed, cases):
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        tries = [(m, pool.submit(try_mutant, exe, folder, plugins, m)) for m in listed]
        for (name, what, case, _), tried in tries:
            with cases.case(f"mutant {name} ({what})"):
                one = tried.result()
                print(f"{name:<28} {case:<32} {one['state']:<11} {one_line(one['text'])}")
                assert one["state"] == "failed", f"{case} does not catch {name}: {one}"


def green(exe, folder, plugins, cases):
    with cases.case("the same plugin without a defect passes"):
        found = check(exe, folder, os.path.join(plugins, "backend_mutants.so"), ["--quick"])
        bad = [(c["name"], c["text"]) for c in found["cases"] if c["state"] == "failed"]
        harness.equal(bad, [])
        left_out = {c["name"] for c in found["cases"] if c["state"] == "unsupported"}
        assert left_out <= set(WITHOUT), f"the mutants' plugin should do {left_out - set(WITHOUT)}"


def complete(exe, folder, listed, cases):
    with cases.case("every check has a mutant, or a reason why it has none"):
        done = harness.run(exe, ["plugin", "check", "--list", "--json"], folder).expect(0)
        names = {c["name"] for c in json.loads(done.out)}
        caught = {case for _, _, case, _ in listed}
        harness.equal(sorted(names - caught - set(WITHOUT)), [], "checks without a mutant")
        harness.equal(sorted(caught & set(WITHOUT)), [], "reasons that are out of date")
        harness.equal(sorted((caught | set(WITHOUT)) - names), [], "names that are no checks")
    for case, reason in sorted(WITHOUT.items()):
        print(f"{'-':<28} {case:<32} {'no mutant':<11} {reason}")


def main():
    exe, path, plugins = (os.path.abspath(a) for a in sys.argv[1:4])
    cases = harness.Cases()
    listed = list(mutants(path))
    with harness.Folder() as folder:
        green(exe, folder, plugins, cases)
        red(exe, folder, plugins, listed, cases)
        complete(exe, folder, listed, cases)
    cases.finish()


if __name__ == "__main__":
    main()
