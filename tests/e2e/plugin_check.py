#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pantheon plugin check`: the cpu plugin passes, hostile files fail and hurt nobody."""
import json
import os
import sys

import harness
from harness import contains, equal


def cpu_path(exe):
    return os.path.join(harness.build_root(exe), "backends", "cpu", "backend_cpu.so")


def hostile(exe, kind):
    return os.path.join(harness.build_root(exe), "tests", "fixtures", f"hostile_{kind}.so")


def check(exe, folder, path, *args, code=0):
    done = harness.run(exe, ["plugin", "check", path, "--json", *args], folder, seconds=240)
    return json.loads(done.expect(code).out)


def passes(exe, cases):
    for how in ([], ["--in-process"]):
        with harness.Folder() as folder, cases.case(f"the cpu plugin passes {' '.join(how)}"):
            found = check(exe, folder, cpu_path(exe), "--quick", "--seed", "7", *how)
            equal([c["name"] for c in found["cases"] if c["state"] == "failed"], [])
            equal((found["name"], found["seed"], found["failed"]), ("cpu", 7, 0))
            assert found["passed"] >= 100, found["passed"]
            left_out = {c["name"] for c in found["cases"] if c["state"] == "unsupported"}
            equal(left_out, {"ops/conv", "ops/delta_net", "fault/settle", "fault/sticky"})
            listed = json.loads(harness.run(exe, ["plugin", "list", "--json"], folder).expect(0).out)
            cpu = [p for p in listed["plugins"] if p.get("name") == "cpu"][0]
            contains(cpu["conformance"], f"passed {found['passed']}/{found['passed']} (quick) on 20")
            text = harness.run(exe, ["plugin", "list"], folder).expect(0).out
            contains(text, cpu["conformance"])


def selects(exe, cases):
    with harness.Folder() as folder:
        with cases.case("--list needs no file; --only takes groups and cases"):
            rows = json.loads(harness.run(exe, ["plugin", "check", "--list", "--json"],
                                          folder).expect(0).out)
            assert all(r["name"].startswith(r["group"] + "/") for r in rows)
            groups = {r["group"] for r in rows}
            equal(len(groups), 9, str(groups))
            only = check(exe, folder, cpu_path(exe), "--quick", "--only", "static", "--only",
                         "ops/norm")
            names = [c["name"] for c in only["cases"]]
            equal(names, [r["name"] for r in rows
                          if r["group"] == "static" or r["name"] == "ops/norm"])
        with cases.case("a part of a check is not kept as its result"):
            listed = json.loads(harness.run(exe, ["plugin", "list", "--json"], folder).expect(0).out)
            equal({p["conformance"] for p in listed["plugins"] if "name" in p}, {"not checked"})
        with cases.case("options reach the plugin; an unknown one fails by name"):
            check(exe, folder, cpu_path(exe), "--only", "ops/linear", "--option", "threads=1")
            bad = check(exe, folder, cpu_path(exe), "--only", "ops/linear", "--option", "nosuch=1",
                        code=1)
            contains(bad["cases"][0]["text"], "nosuch")
        with cases.case("wrong arguments are usage errors"):
            for args in (["--only", "nosuch"], ["--option", "x"], []):
                path = [cpu_path(exe)] if args else []
                harness.run(exe, ["plugin", "check", *path, *args], folder).expect(harness.USAGE)
            harness.run(exe, ["plugin", "check", "/nosuch.so"], folder).expect(harness.PLUGIN)


def survives(exe, cases):
    kinds = {"constructor_crash": "signal 11", "constructor_exit": "exit(0)",
             "entry_crash": "signal 6", "entry_exit": "exit(7)", "entry_no_table": "no table",
             "entry_refuses": "no libexample.so.1", "no_entry": "symbol"}
    for kind, words in kinds.items():
        with harness.Folder() as folder, cases.case(f"hostile plugin: {kind}"):
            found = check(exe, folder, hostile(exe, kind), "--only", "probe/load", code=1)
            equal(found["cases"][0]["state"], "failed")
            if not (harness.SANITIZED and words == "signal 11"):
                contains(found["cases"][0]["text"], words)
    with harness.Folder() as folder, cases.case("hostile plugin: constructor_hang"):
        found = check(exe, folder, hostile(exe, "constructor_hang"), "--only", "probe/load",
                      "--deadline", "2", code=1)
        contains(found["cases"][0]["text"], "hung")
    with harness.Folder() as folder, cases.case("a file that is no plugin"):
        path = folder.file("text.so", "not a plugin\n" * 100)
        found = check(exe, folder, path, "--only", "static", code=1)
        equal({c["state"] for c in found["cases"]}, {"failed"})
    with harness.Folder() as folder, cases.case("a whole check of a plugin that hangs ends soon"):
        found = check(exe, folder, hostile(exe, "constructor_hang"), "--deadline", "2", code=1)
        assert found["failed"] > 80, found["failed"]
        contains(found["cases"][-1]["text"], "not run")


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    for part in (passes, selects, survives):
        part(exe, cases)
    cases.finish()


if __name__ == "__main__":
    main()
