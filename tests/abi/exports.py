# SPDX-License-Identifier: Apache-2.0
#
# What leaves a plugin: one symbol, no unique C++ symbol, no run path, no text relocation, one note.
#
#   exports.py [--must-fail] PLUGIN...
import subprocess
import sys

ENTRY = "pantheon_plugin_entry_1"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def complaints(plugin):
    out = []
    defined = [line.split() for line in output("nm", "-D", "--defined-only", plugin).splitlines()]
    names = [words[-1] for words in defined]
    if names != [ENTRY]:
        out.append(f"exports {names}, expected {ENTRY} alone: link with plugin_sdk_dep")
    if any(words[-2] == "u" for words in defined):
        out.append("has a GNU_UNIQUE symbol, which two plugins would share: -fno-gnu-unique")
    dynamic = output("readelf", "-dW", plugin)
    for tag in ("(RPATH)", "(RUNPATH)", "(TEXTREL)"):
        if tag in dynamic:
            out.append(f"has {tag}")
    for needed in ("libcuda", "libnvidia", "libtt"):
        if f"[{needed}" in dynamic:
            out.append(f"is linked with {needed}: open drivers with dlopen")
    if output("readelf", "-SW", plugin).count(" .note.pantheon ") != 1:
        out.append("has no .note.pantheon: PN_PLUGIN_NOTE")
    return out


def main(args):
    must_fail = args[:1] == ["--must-fail"]
    plugins = args[1:] if must_fail else args
    bad = 0
    for plugin in plugins:
        found = complaints(plugin)
        bad += bool(found)
        for text in found:
            print(f"{plugin}: {text}")
    print(f"{len(plugins)} plugins, {bad} with complaints")
    if not plugins:
        return 1
    return int(bad != len(plugins)) if must_fail else int(bad != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
