#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public reports about loading plugins and binding dies, as cases A01, A02, A03, A04, A08 and A25.

A26 is in hang.py. The dies are scripted (plugins/chaos)."""
import os
import shutil
import sys

import harness
from harness import contains, equal

PLUGINS = (harness.PLUGIN, harness.USAGE)


def profile(folder, chaos, dies='"*"', more="", cpu=False, required=False):
    text = (f"plugins:\n  chaos: {{ required: {'true' if required else 'false'}, "
            f"options: {{ token_min: 263, {chaos} }} }}\n" + ("  cpu: {}\n" if cpu else "") +
            f"models:\n  - {{ name: m, file: {harness.DEMO}, context: 256, dies: [{dies}] }}\n")
    return harness.profile(folder, "reports.yaml", text + more)


def refused(exe, folder, args, *words):
    """No start: an exit code, the reason in words, nothing opened, no fallback."""
    done = harness.run(exe, [*args, "serve", "--port", "0"], folder)
    assert done.code not in (0, harness.SANITIZER_EXIT), done.err
    for word in words:
        contains(done.err, word)
    assert "listening" not in done.err, done.err
    return done


def card_too_old(exe, cases):
    with harness.Folder() as folder, cases.case("A01: two dies that the plugin has kernels for"):
        path = profile(folder, 'dies_per_card: 2, name: "die of arch sm_37"')
        out = harness.run(exe, ["--profile", path, "devices"], folder).expect(0).out
        equal(out.count("die of arch sm_37"), 2)
        equal(out.count("ready"), 2)
    with harness.Folder() as folder, cases.case("A01: dies without kernels are listed, unusable"):
        why = "arch sm_37, and this plugin carries kernels for sm_50 and up"
        path = profile(folder, f'dies_per_card: 2, state: absent, reason: "{why}"')
        done = harness.run(exe, ["--profile", path, "devices"], folder)
        equal((done.out + done.err).count(why), 2, done.out + done.err)
        refused(exe, folder, ["--profile", path], why)


def first_launch_dies(exe, cases):
    driver = "CUDA error 209: no kernel image is available"
    with harness.Folder() as folder, cases.case("A02: a die that fails its check is left out"):
        path = profile(folder, f'dies_per_card: 2, die0.self_check: "{driver}"')
        with harness.Server(exe, folder, [], ["--profile", path]) as server:
            answer = server.get("/v1/models/m").json()
            equal(answer["meta"]["die"], "chaos:1")
            server.complete("Once", max_tokens=4, ignore_eos=True)
            ready = server.get("/ready").expect(200).json()
            equal(ready["status"], "degraded")
            contains(ready["notes"][0], "chaos:0 is unusable")
            contains(ready["notes"][0], "self-check failed: " + driver)
            contains(server.log(), driver)
    with harness.Folder() as folder, cases.case("A02: require_all makes it a failure to start"):
        path = profile(folder, f'dies_per_card: 2, die0.self_check: "{driver}"',
                       more="require_all: true\n")
        refused(exe, folder, ["--profile", path], driver, "require_all")
    with harness.Folder() as folder, cases.case("A02: no die is left"):
        path = profile(folder, f'dies_per_card: 2, self_check: "{driver}"')
        refused(exe, folder, ["--profile", path], driver, "chaos:0", "chaos:1")


def driver_mismatch(exe, cases):
    why = "driver/library mismatch: kernel 535.171, library 550.54"
    state = f'state: absent, reason: "{why}"'
    with harness.Folder() as folder, cases.case("A03: a required plugin without a die: no start"):
        path = profile(folder, state, cpu=True, required=True)
        refused(exe, folder, ["--profile", path], why)
    with harness.Folder() as folder, cases.case("A03: a model pinned to it: no start on the CPU"):
        path = profile(folder, state, dies='"chaos:*"', cpu=True)
        refused(exe, folder, ["--profile", path], why)
    with harness.Folder() as folder, cases.case("A03: opening fails: the model is not served"):
        path = profile(folder, f'fail_open: "{why}"', dies='"chaos:*"', cpu=True)
        refused(exe, folder, ["--profile", path], why)


def no_entry(exe, cases):
    build = harness.build_root(exe)
    with open(os.path.join(build, "plugins", "null", "backend_null.so"), "rb") as file:
        good = file.read()
    note = good.index(b"abi=0.") + 4  # "0.2-0.2"
    minor = good[note + 2:note + 3]
    text = good[note:note + 7]
    equal(text, b"0." + minor + b"-0." + minor)
    next_minor = bytes([minor[0] + 1])

    def with_abi(abi):
        return good[:note] + abi + good[note + len(abi):]

    fixture = os.path.join(build, "tests", "fixtures", "hostile_no_entry.so")
    files = {  # name -> (content, what is expected, what was found)
        "text.so": (b"not a plugin\n" * 100, "ELF"),
        "machine.so": (good[:18] + b"\xb7\0" + good[20:], "machine"),
        "entry.so": (None, "pantheon_plugin_entry_1"),
        "major.so": (with_abi(b"1." + minor + b"-1." + minor), "1." + minor.decode()),
        "minor.so": (with_abi(b"0." + next_minor + b"-0." + next_minor),
                     "0." + next_minor.decode()),
    }
    said = {}
    for name, (content, found) in files.items():
        with harness.Folder() as folder, cases.case(f"A04: {name}"):
            path = folder.file(name, content)
            if content is None:
                shutil.copy(fixture, path)
            done = refused(exe, folder, ["--backend-plugin", path], path, found)
            assert done.code in PLUGINS, done.code
            said[name] = done.err.replace(path, "")
            if name in ("major.so", "minor.so"):  # both numbers: what it is, what is offered
                contains(done.err, "0." + minor.decode())
    with harness.Folder() as folder, cases.case("A04: five different messages"):
        equal(len(set(said.values())), 5, str(said))
    with harness.Folder() as folder, cases.case("A04: a good plugin beside it does not help"):
        bad = folder.file("text.so", "no plugin")
        refused(exe, folder, ["--backend-plugin", "cpu", "--backend-plugin", bad], bad)


def by_name_of_die(exe, cases):
    for pattern in ("chaos:1", "chaos-0-1"):
        with harness.Folder() as folder, cases.case(f"A08: a model pinned to {pattern}"):
            path = profile(folder, "dies_per_card: 2", dies=f'"{pattern}"')
            with harness.Server(exe, folder, [], ["--profile", path]) as server:
                equal(server.get("/v1/models/m").json()["meta"]["die"], "chaos:1")


def held_by_another(exe, cases):
    why = "card 0 is in use by PID 4242 (python3 train.py)"
    with harness.Folder() as folder, cases.case("A25: a die that somebody holds is told, with whom"):
        path = profile(folder, f'state: in_use, reason: "{why}"')
        refused(exe, folder, ["--profile", path], why)
    with harness.Folder() as folder, cases.case("A25: other cards are opened meanwhile"):
        path = profile(folder, f'cards: 2, die0.state: in_use, die0.reason: "{why}"')
        with harness.Server(exe, folder, [], ["--profile", path]) as server:
            equal(server.get("/v1/models/m").json()["meta"]["die"], "chaos:1")


def main():
    cases = harness.Cases()
    for part in (card_too_old, first_launch_dies, driver_mismatch, no_entry, by_name_of_die,
                 held_by_another):
        part(sys.argv[1], cases)
    cases.finish()


if __name__ == "__main__":
    main()
