# SPDX-License-Identifier: Apache-2.0
"""A plugin author's machine: pantheon installed into a folder, and what is built against it.

Owns the installation and its pkg-config file, whose prefix is set to where the folder is, as a
relocated package has it. Knows no test.
"""
import json
import os
import re
import subprocess

import harness

QUESTIONS = ("Which command lists the dies?", "What is Pantheon?", "Tell me a story about a robot.")


def option(build, name):
    text = subprocess.run(["meson", "introspect", build, "--buildoptions"], capture_output=True,
                          text=True, check=True).stdout
    return next(o["value"] for o in json.loads(text) if o["name"] == name)


def install(exe, folder):
    """Installs the build of exe into folder; the environment in which pkg-config finds it."""
    build, target = harness.build_root(exe), folder.file("installed")
    command = ["meson", "install", "-C", build, "--no-rebuild", "--quiet"]
    done = subprocess.run(command, env=dict(os.environ, DESTDIR=target), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    root = target + option(build, "prefix")
    configs = os.path.join(root, option(build, "libdir"), "pkgconfig")
    config = os.path.join(configs, "pantheon-hal.pc")
    with open(config, encoding="utf-8") as file:
        text = file.read()
    with open(config, "w", encoding="utf-8") as file:
        file.write(re.sub(r"(?m)^prefix=.*$", "prefix=" + root, text))
    path = os.path.join(root, option(build, "bindir")) + os.pathsep + os.environ["PATH"]
    env = folder.environment(PKG_CONFIG_PATH=configs, PATH=path)
    for name in ("CC", "CXX", "CFLAGS", "LDFLAGS"):
        env.pop(name, None)
    return env


def command(words, env, where, seconds=300):
    """One command that must succeed; what it printed."""
    done = subprocess.run(words, cwd=where, env=env, capture_output=True, text=True,
                          timeout=seconds, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(project, env):
    """Configures and compiles a Meson project; warnings are errors."""
    command(["meson", "setup", "build", "-Dwerror=true"], env, project)
    command(["meson", "compile", "-C", "build"], env, project)


def answers(exe, folder, plugin, questions=QUESTIONS):
    """What the demo model says by a plugin, greedily."""
    out = []
    for question in questions:
        words = ["--backend-plugin", plugin, "run", harness.DEMO, "-p", question, "--temp", "0",
                 "-n", "48", "--context", "256"]
        out.append(harness.run(exe, words, folder, seconds=240).expect(0).out)
    return out
