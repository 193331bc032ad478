#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The template and a project of `plugin new`, built against what is installed, serve the demo."""
import concurrent.futures
import os
import shutil
import subprocess
import sys

import harness
import kit
from harness import contains, equal

PROMPTS = ("Once upon a time", "A robot", "The die", "pantheon serve")


def exported(path):
    text = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True,
                          check=True).stdout
    return [line.split()[-1] for line in text.splitlines()]


def the_template(exe, folder, env, cases):
    project = folder.file("template")
    shutil.copytree(os.path.join(harness.ROOT, "plugins", "template"), project)
    plugin = os.path.join(project, "build", "backend_template.so")
    with cases.case("the template builds against the installed kit only"):
        kit.build(project, env)
        equal(exported(plugin), ["pantheon_plugin_entry_1"])
    with cases.case("it keeps the contract"):
        done = harness.run(exe, ["plugin", "check", plugin, "--quick"], folder, seconds=200)
        contains(done.expect(0).out, " 0 failed")
    with cases.case("its greedy text is that of the cpu plugin"):
        equal(kit.answers(exe, folder, plugin), kit.answers(exe, folder, "cpu"))
    with cases.case("it serves several sequences at once"):
        with harness.Server(exe, folder, ["--model", harness.DEMO, "--context", "256"],
                            ["--backend-plugin", plugin]) as server:
            contains(harness.text_of(server.chat(kit.QUESTIONS[0])), "devices")
            alone = [harness.text_of(server.complete(p, max_tokens=12)) for p in PROMPTS]
            with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
                beside = pool.map(lambda p: server.complete(p, max_tokens=12), PROMPTS)
                equal([harness.text_of(answer) for answer in beside], alone)
            contains(server.log(), "using template")


def hidden_memory(exe, folder, cases):
    plugin = os.path.join(harness.build_root(exe), "tests", "fixtures", "backend_hidden_die.so")
    with cases.case("the op-loop never looks behind a die's address"):
        done = harness.run(exe, ["plugin", "check", plugin, "--quick"], folder, seconds=200)
        contains(done.expect(0).out, " 0 failed")
        equal(kit.answers(exe, folder, plugin, kit.QUESTIONS[:2]),
              kit.answers(exe, folder, "cpu", kit.QUESTIONS[:2]))


def new_project(exe, folder, env, cases):
    # Away from its build tree and its data: the files are inside the program.
    lone = shutil.copy(exe, folder.file("pantheon"))
    place = folder.file("a place/mine")
    with cases.case("plugin new writes a project under another name"):
        done = harness.run(lone, ["plugin", "new", "mine2", place], folder).expect(0)
        contains(done.out, "README.md")
        equal(sorted(os.listdir(place)),
              sorted(os.listdir(os.path.join(harness.ROOT, "plugins", "template"))))
        for name in os.listdir(place):
            with open(os.path.join(place, name), encoding="ascii") as file:
                assert "template" not in file.read().lower(), name
    with cases.case("it builds, is found under its name, and answers"):
        kit.build(place, env)
        plugin = os.path.join(place, "build", "backend_mine2.so")
        words = ["--backend-plugin", plugin, "--backend"]
        contains(harness.run(exe, words, folder).expect(0).out, "mine2")
        contains(kit.answers(exe, folder, plugin, kit.QUESTIONS[:1])[0], "devices")
        profile = harness.profile(folder, "p.yaml",
                                  f"plugin_dirs: ['{os.path.dirname(plugin)}']\n"
                                  "plugins: { mine2: {} }\n")
        contains(harness.run(exe, ["--profile", profile, "--backend"], folder).expect(0).out,
                 "mine2")


def refusals(exe, folder, cases):
    taken = folder.file("taken")
    os.mkdir(taken)
    folder.file("file", "x")
    bad = [(["Mine"], "a-z"), (["9lives"], "a letter first"), (["a-b"], "a-z"), (["a" * 64], "63"),
           (["cpu"], "pantheon's own"), (["template"], "pantheon's own"),
           (["mine", taken], "exists already"), (["mine", folder.file("file")], "exists already")]
    for words, said in bad:
        with cases.case(f"plugin new {' '.join(words)[-40:]} is refused"):
            done = harness.run(exe, ["plugin", "new", *words], folder).expect(harness.USAGE)
            contains(done.err, said)
            equal(os.listdir(taken), [])
    with cases.case("a folder that cannot be made, and no name at all"):
        done = harness.run(exe, ["plugin", "new", "mine", folder.file("file") + "/x"], folder)
        assert done.code != 0 and "cannot be made" in done.err, done.err
        harness.run(exe, ["plugin", "new"], folder).expect(harness.USAGE)


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    if shutil.which("pkg-config") is None or shutil.which("cc") is None:
        cases.skip("no pkg-config or no cc")
        cases.finish()
    with harness.Folder() as folder:
        refusals(exe, folder, cases)
        if harness.SANITIZED:
            cases.skip("a plugin built without the sanitizer is refused by this program")
            cases.finish()
        env = kit.install(exe, folder)
        the_template(exe, folder, env, cases)
        hidden_memory(exe, folder, cases)
        new_project(exe, folder, env, cases)
    cases.finish()


if __name__ == "__main__":
    main()
