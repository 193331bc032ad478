#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/plugins.md, block by block in an empty folder, makes a plugin that serves the demo model."""
import os
import re
import shutil
import subprocess
import sys

import harness
import kit
from harness import contains

FENCE = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def blocks(text):
    """(language, where, content) of each fenced block"""
    return [(m.group(1), m.group(2) or "", m.group(3)) for m in FENCE.finditer(text)]


def run_block(number, block, place, env, last):
    """Does what one block says; what the last command printed."""
    language, where, content = block
    if where.startswith(("file=", "file+=")):
        name = where.split("=", 1)[1]
        assert "/" not in name, name
        with open(os.path.join(place, name), "a" if "+=" in where else "w", encoding="ascii") as out:
            out.write(content)
        return last
    if language == "sh":
        done = subprocess.run(["bash", "-ec", content], cwd=place, env=env, capture_output=True,
                              text=True, timeout=600, check=False)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, f"block {number}: exit code {done.returncode}\n{printed[-4000:]}"
        return printed
    assert language == "text", f"block {number}: a block of {language} is no file and no command"
    for line in content.splitlines():
        contains(last, line.strip())
    return last


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    if harness.SANITIZED or shutil.which("pkg-config") is None or shutil.which("cc") is None:
        cases.skip("a sanitizer build, no pkg-config, or no cc")
        cases.finish()
    with harness.Folder() as folder:
        env = kit.install(exe, folder)
        # The program in its build tree, which finds the CPU plugin and the demo model.
        os.mkdir(folder.file("bin"))
        os.symlink(exe, folder.file("bin/pantheon"))
        env["PATH"] = folder.file("bin") + os.pathsep + env["PATH"]
        place = folder.file("mine")
        os.mkdir(place)
        with open(os.path.join(harness.ROOT, "docs", "plugins.md"), encoding="ascii") as file:
            found = blocks(file.read())
        with cases.case("the page has files, commands, and what they print"):
            kinds = [language for language, _, _ in found]
            assert kinds.count("c") >= 6 and kinds.count("sh") >= 4 and kinds.count("text") >= 4
        printed = ""
        for number, block in enumerate(found, 1):
            with cases.case(f"block {number}: {' '.join(block[:2])}"):
                printed = run_block(number, block, place, env, printed)
        plugin = os.path.join(place, "backend_mine.so")
        with cases.case("the result says what the cpu plugin says"):
            harness.equal(kit.answers(exe, folder, plugin, kit.QUESTIONS[:2]),
                          kit.answers(exe, folder, "cpu", kit.QUESTIONS[:2]))
        with cases.case("the result serves"):
            args = ["--model", harness.DEMO, "--context", "256"]
            with harness.Server(exe, folder, args, ["--backend-plugin", plugin]) as server:
                contains(harness.text_of(server.chat(kit.QUESTIONS[0])), "devices")
                contains(server.log(), "using mine")
    cases.finish()


if __name__ == "__main__":
    main()
