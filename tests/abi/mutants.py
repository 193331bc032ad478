# SPDX-License-Identifier: Apache-2.0
#
# Do the first two gates catch what they are for? Headers are copied, broken in one way each, and
# looked at: a guarded append must pass both, everything else must be seen.
#
#   mutants.py CLANG SOURCE INCLUDE GOLDEN STORED
#
# Gate 1 (views, abidiff) sees every change of what a released minor shows; gate 2 (layout) loses
# lines, and says which. An append without #if is red in the first only, a renamed member in the
# second only (abidiff of libabigail 2.2 ends with 0).
import os
import shutil
import subprocess
import sys
import tempfile

from layout import SKIP, layout

# name, file, text to find, its replacement, is gate 1 red, is gate 2 red?
MUTANTS = [
    ("append", "device.h", "  uint64_t sampled_at_ns;    /* the host's now_ns */",
     "  uint64_t sampled_at_ns;\n#if PN_ABI_MINOR >= 3\n  uint64_t appended;\n#endif", False, False),
    ("append slot", "layout.h", "  pn_status (*targets)(uint32_t *count, pn_pair *, pn_error *);",
     "  pn_status (*targets)(uint32_t *count, pn_pair *, pn_error *);\n#if PN_ABI_MINOR >= 3\n"
     "  pn_status (*more)(pn_error *);\n#endif", False, False),
    ("append without #if", "device.h", "  uint64_t sampled_at_ns;    /* the host's now_ns */",
     "  uint64_t sampled_at_ns;\n  uint64_t appended;", True, False),
    ("insert", "device.h", "  uint64_t used_by_us;", "  uint64_t x;\n  uint64_t used_by_us;",
     True, True),
    ("widen", "device.h", "  uint32_t quality; ", "  uint64_t quality; ", True, True),
    ("retype", "device.h", "  uint64_t used_by_others;", "  int64_t used_by_others;", True, True),
    ("rename", "device.h", "  uint64_t used_by_others;", "  uint64_t used_by_many;", False, True),
    ("signature", "plugin.h", "void (*device_close)(pn_device);",
     "void (*device_close)(pn_device, uint32_t);", True, True),
    ("signature behind an interface", "layout.h", "pn_status (*targets)(uint32_t *count, pn_pair *,",
     "pn_status (*targets)(uint64_t *count, pn_pair *,", True, True),
    ("swap", "plugin.h", "  uint32_t min_host_minor; ", "  uint32_t reserved_too; ", False, True),
]


def mutate(include, mutant, folder):
    _, name, find, put, *_ = mutant
    shutil.copytree(include, folder)
    path = os.path.join(folder, "pantheon", name)
    with open(path) as f:
        text = f.read()
    if text.count(find) != 1:
        sys.exit(f"mutant {mutant[0]}: its text is in {name} {text.count(find)} times")
    text = text.replace(find, put)
    # The size pins would stop most of these before the gate is asked.
    core = os.path.join(folder, "pantheon", "core.h")
    with open(path, "w") as f:
        f.write(text)
    with open(core) as f:
        pins = f.read().replace("sizeof(T) == (bytes) && (bytes) % 8 == 0", "sizeof(T) > 0")
    with open(core, "w") as f:
        f.write(pins)


def view_differs(clang, source, include, stored):
    """Gate 1: abidiff of the mutated headers' view against the stored one."""
    with tempfile.TemporaryDirectory() as tmp:
        view = os.path.join(tmp, "view.so")
        subprocess.run([clang, "-std=c11", "-g", "-shared", "-fPIC", "-I", include, source, "-o", view],
                       check=True, capture_output=True, text=True)
        return subprocess.run(["abidiff", stored, view], capture_output=True).returncode != 0


def main(clang, source, include, golden, stored):
    for tool, package in ((clang, "clang"), ("abidiff", "abigail-tools")):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed (apt-get install {package})")
            return SKIP
    with open(golden) as lines:
        released = set(lines.read().split("\n")) - {""}
    wrong = 0
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(tmp, "include")
            mutate(include, mutant, folder)
            try:
                lost = released - set(layout(clang, source, folder))
                differs = view_differs(clang, source, folder, stored)
            except subprocess.CalledProcessError as e:
                print(mutant[0], "does not compile:", e.stderr)
                return 1
        ok = (differs, bool(lost)) == mutant[4:]
        wrong += not ok
        print("ok   " if ok else "WRONG", f"{mutant[0]}: views {'differ' if differs else 'agree'}, "
              f"{len(lost)} lines lost")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
