#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins by name and by path, and everything that is refused: no fallback, every path named."""
import glob
import json
import os
import shutil
import sys

import harness
from harness import contains, equal


def cpu_path(exe):
    return os.path.join(harness.build_root(exe), "backends", "cpu", "backend_cpu.so")


def serves(exe, cases):
    for name, what in (("cpu", "cpu"), ("its path", cpu_path(exe))):
        with cases.case(f"--backend-plugin with {name} serves"):
            with harness.Folder() as folder:
                args = ["--model", harness.DEMO, "--context", "256"]
                with harness.Server(exe, folder, args, ["--backend-plugin", what]) as server:
                    contains(harness.text_of(server.chat("Which command lists the dies?")),
                             "devices")
                    contains(server.log(), "using cpu")
    with cases.case("PANTHEON_BACKEND_PLUGIN names it too; a flag wins over it"):
        with harness.Folder() as folder:
            env = folder.environment(PANTHEON_BACKEND_PLUGIN="nosuch")
            harness.run(exe, ["--backend"], folder, env=env).expect(harness.PLUGIN)
            done = harness.run(exe, ["--backend-plugin", "cpu", "--backend"], folder,
                               env=env).expect(0)
            contains(done.out, "cpu")


def refuses_names(exe, cases):
    for command in (["serve", "--port", "0"], ["run", harness.DEMO, "-p", "x"], ["devices"]):
        with cases.case(f"--backend-plugin nosuch {command[0]} names every path tried"):
            with harness.Folder() as folder:
                done = harness.run(exe, ["--backend-plugin", "nosuch", *command], folder)
                done.expect(harness.PLUGIN)
                contains(done.err, "nosuch")
                contains(done.err, os.path.join(harness.build_root(exe), "plugins"))
                contains(done.err, "/pantheon")  # the installed place
                equal(("listening" in done.err, done.out), (False, ""), "no fallback")
    with cases.case("one good and one missing plugin is still an error"):
        with harness.Folder() as folder:
            args = ["--backend-plugin", "cpu", "--backend-plugin", "nosuch", "devices"]
            harness.run(exe, args, folder).expect(harness.PLUGIN)


def refused(exe, folder, path, *words):
    """A path that cannot be a plugin: not exit 0, the path and the reason named, nothing served."""
    done = harness.run(exe, ["--backend-plugin", path, "serve", "--port", "0"], folder)
    assert done.code == harness.PLUGIN, f"exit code {done.code}: {done.err}"
    for word in words or [os.path.basename(path)]:
        contains(done.err, word)
    assert "listening" not in done.err, done.err


def refuses_files(exe, cases):
    with harness.Folder() as folder:
        with cases.case("a text file, an empty file, a missing file, a folder"):
            refused(exe, folder, folder.file("text.so", "not a plugin\n" * 100))
            refused(exe, folder, folder.file("empty.so", b""))
            refused(exe, folder, folder.file("missing.so"))
            refused(exe, folder, folder.path)
        with cases.case("a plugin cut in half, and another machine's"):
            with open(cpu_path(exe), "rb") as file:
                whole = file.read()
            refused(exe, folder, folder.file("half.so", whole[:len(whole) // 2]))
            refused(exe, folder, folder.file("arm.so", whole[:18] + b"\xb7\0" + whole[20:]))
            refused(exe, folder, folder.file("elf32.so", whole[:4] + b"\1" + whole[5:]))
    fixtures = sorted(glob.glob(os.path.join(harness.build_root(exe), "tests", "fixtures",
                                             "hostile_*.so")))
    with cases.case("there are hostile plugins to try"):
        assert len(fixtures) >= 10, fixtures
    for path in fixtures:
        kind = os.path.basename(path).removeprefix("hostile_").removesuffix(".so")
        with cases.case(f"hostile plugin: {kind}"):
            with harness.Folder() as folder:
                refused(exe, folder, path)


def refuses_writable(exe, cases):
    with harness.Folder() as folder, cases.case("a plugin folder that others may write to"):
        open_folder = folder.file("open")
        os.mkdir(open_folder)
        copy = shutil.copy(cpu_path(exe), open_folder)
        refused_by = harness.run(exe, ["--backend-plugin", copy, "devices"], folder)
        equal(refused_by.code, 0, "before it is writable: " + refused_by.err)
        os.chmod(open_folder, 0o777)
        refused(exe, folder, copy, open_folder, "others may write", "chmod o-w")
        text = f"plugin_dirs: [{open_folder}]\nplugins: {{ cpu: {{}} }}\n"
        path = harness.profile(folder, "p.yaml", text)
        listed = json.loads(harness.run(exe, ["--profile", path, "plugin", "list", "--json"],
                                        folder).expect(0).out)
        place = [p for p in listed["places"] if p["path"] == open_folder]
        equal([p["state"] for p in place], ["refused"], str(listed["places"]))
        contains(place[0]["reason"], "chmod o-w")


def lists(exe, cases):
    with harness.Folder() as folder, cases.case("plugin list --json shows all, and why not"):
        bad = folder.file("bad")
        os.mkdir(bad)
        folder.file("bad/text.so", "no plugin")
        shutil.copy(os.path.join(harness.build_root(exe), "tests", "fixtures",
                                 "hostile_wrong_abi.so"), bad)
        path = harness.profile(folder, "p.yaml", f"plugin_dirs: [{bad}]\n")
        args = ["--profile", path, "plugin", "list"]
        found = json.loads(harness.run(exe, [*args, "--json"], folder).expect(0).out)
        states = {os.path.basename(p["path"]): p for p in found["plugins"]}
        cpu = states["backend_cpu.so"]
        equal((cpu["state"], cpu["name"], cpu["kind"]), ("usable", "cpu", "hal"))
        for name in ("text.so", "hostile_wrong_abi.so"):
            equal(states[name]["state"], "refused")
            assert states[name]["reason"], name
        contains(states["hostile_wrong_abi.so"]["reason"], "12")  # both ABI numbers are named
        text = harness.run(exe, args, folder).expect(0).out
        for name in states:
            contains(text, name)
    with harness.Folder() as folder, cases.case("the second listing comes from the cache alike"):
        first = harness.run(exe, ["plugin", "list", "--json"], folder).expect(0).out
        equal(harness.run(exe, ["plugin", "list", "--json"], folder).expect(0).out, first)


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    for part in (serves, refuses_names, refuses_files, refuses_writable, lists):
        part(exe, cases)
    cases.finish()


if __name__ == "__main__":
    main()
