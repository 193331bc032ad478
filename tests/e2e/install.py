#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install` puts everything where a distribution expects it, and the installed program works.

Installed into a folder with a space in its name, as packagers do with DESTDIR.
"""
import json
import os
import shutil
import subprocess
import sys

import harness
from harness import contains, equal


def install(build, target):
    env = dict(os.environ, DESTDIR=target)
    command = ["meson", "install", "-C", build, "--no-rebuild", "--quiet"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def option(build, name):
    text = subprocess.run(["meson", "introspect", build, "--buildoptions"], capture_output=True,
                          text=True, check=True).stdout
    return next(o["value"] for o in json.loads(text) if o["name"] == name)


def installed(root):
    return {os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root) for name in names}


def expected(build, source):
    bin_, lib, data = (option(build, n) for n in ("bindir", "libdir", "datadir"))
    libexec = option(build, "libexecdir")
    files = {f"{bin_}/pantheon", f"{libexec}/pantheon-backend-host",
             f"{lib}/pantheon/backend_cpu.so",
             f"{lib}/pkgconfig/pantheon-hal.pc", f"{data}/man/man1/pantheon.1",
             "lib/systemd/system/pantheon.service",
             f"{data}/doc/pantheon/examples/profile.yaml", f"{data}/doc/pantheon/LICENSE",
             f"{data}/doc/pantheon/README.md", f"{data}/pantheon/models/pantheon-demo.gguf",
             f"{lib}/libpantheon-oploop.a"}
    for place in ("include", "sdk/include"):
        for folder, _, names in os.walk(os.path.join(source, "hal", place, "pantheon")):
            files |= {f"include/pantheon/{name}" for name in names if name.endswith(".h")}
    return files


def check_files(build, root, cases):
    with cases.case("what is installed"):
        found, wanted = installed(root), expected(build, harness.ROOT)
        equal(sorted(wanted - found), [], "missing")
        odd = [f for f in found if "test" in f or "hostile" in f or f.endswith(".in")
               or (f.endswith(".a") and "libpantheon-oploop" not in f)]
        equal(odd, [], "belongs to the tree only")
    with cases.case("the unit starts the installed program"):
        with open(os.path.join(root, "lib/systemd/system/pantheon.service"), encoding="ascii") as f:
            unit = f.read()
        prefix = option(build, "prefix")
        contains(unit, f"ExecStart={prefix}/{option(build, 'bindir')}/pantheon serve\n")
        for word in ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes"):
            contains(unit, word)
    with cases.case("the example profile has no mistakes"):
        with harness.Folder() as folder:
            path = os.path.join(root, option(build, "datadir"),
                                "doc/pantheon/examples/profile.yaml")
            harness.run(os.path.join(root, option(build, "bindir"), "pantheon"),
                        ["profile", "check", path], folder).expect(0)


def check_header(build, root, cases):
    with cases.case("a C program builds against the installed headers, through pkg-config"):
        if shutil.which("pkg-config") is None or shutil.which("cc") is None:
            cases.skip("no pkg-config or no cc")
            return
        with harness.Folder() as folder:
            source = folder.file("a.c", "#include <pantheon/hal.h>\n"
                                 "int main(void) { return PN_ABI_MAJOR; }\n")
            pc = os.path.join(root, option(build, "libdir"), "pkgconfig")
            prefix = option(build, "prefix")
            env = folder.environment(PKG_CONFIG_PATH=pc)
            flags = subprocess.run(["pkg-config", "--cflags", "pantheon-hal"], env=env, check=True,
                                   capture_output=True, text=True).stdout.strip()
            contains(flags, f"-I{prefix}")
            include = os.path.join(root, "include")
            subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-I", include, source, "-o",
                            folder.file("a")], check=True)


def in_place(target, prefix):
    """The words that run a command with TARGET/PREFIX mounted at PREFIX, or None."""
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    space = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    words = [*space, "sh", "-c", script, "sh", target + prefix, prefix]
    try:
        done = subprocess.run([*words, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return words if done.returncode == 0 else None


def check_program(build, target, cases):
    prefix = option(build, "prefix")
    words = in_place(target, prefix)
    if words is None:
        cases.skip("no mount namespace here: the installed program cannot be run at its place")
        return
    exe = os.path.join(prefix, option(build, "bindir"), "pantheon")
    libdir = os.path.join(prefix, option(build, "libdir"), "pantheon")
    model = os.path.join(prefix, option(build, "datadir"), "pantheon/models/pantheon-demo.gguf")
    with harness.Folder() as folder:
        with cases.case("the installed program finds its plugins"):
            found = json.loads(harness.run([*words, exe], ["plugin", "list", "--json"],
                                           folder).expect(0).out)
            states = {p["path"]: p["state"] for p in found["plugins"]}
            equal(states, {os.path.join(libdir, "backend_cpu.so"): "usable"})
        with cases.case("and answers with the installed demo model"):
            done = harness.run([*words, exe], ["run", "-p", "Which command lists the dies?",
                                               "--temp", "0"], folder).expect(0)
            contains(done.out, "devices")
            checks = json.loads(harness.run([*words, exe], ["doctor", "--json"], folder).out)
            found = next(c["found"] for c in checks if c["check"] == "demo-model")
            assert found in (model, harness.DEMO), found


def main():
    exe = os.path.abspath(sys.argv[1])
    build = harness.build_root(exe)
    cases = harness.Cases()
    with harness.Folder() as folder:
        target = folder.file("a target")
        install(build, target)
        root = target + option(build, "prefix")
        for part in (check_files, check_header):
            part(build, root, cases)
        check_program(build, target, cases)
    cases.finish()


if __name__ == "__main__":
    main()
