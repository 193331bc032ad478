# SPDX-License-Identifier: Apache-2.0
#
# Do the gates catch what they are for? Headers are copied, broken in one way each, and looked at:
# an append must pass, everything else must be seen.
#
#   mutants.py CLANG SOURCE INCLUDE GOLDEN
import os
import shutil
import subprocess
import sys
import tempfile

from layout import SKIP, layout

# name, file, text to find, its replacement, must lines be lost?
MUTANTS = [
    ("append", "device.h", "  uint64_t sampled_at_ns;    /* the host's now_ns */",
     "  uint64_t sampled_at_ns;\n  uint64_t appended;", False),
    ("insert", "device.h", "  uint64_t used_by_us;", "  uint64_t x;\n  uint64_t used_by_us;", True),
    ("widen", "device.h", "  uint32_t quality; ", "  uint64_t quality; ", True),
    ("retype", "device.h", "  uint64_t used_by_others;", "  int64_t used_by_others;", True),
    ("rename", "device.h", "  uint64_t used_by_others;", "  uint64_t used_by_many;", True),
    ("signature", "plugin.h", "void (*device_close)(pn_device);",
     "void (*device_close)(pn_device, uint32_t);", True),
    ("swap", "plugin.h", "  uint32_t min_host_minor; ", "  uint32_t reserved_too; ", True),
]


def mutate(include, mutant, folder):
    _, name, find, put, _ = mutant
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


def main(clang, source, include, golden):
    if shutil.which(clang) is None:
        print(f"skipped: {clang} is not installed (apt-get install clang)")
        return SKIP
    with open(golden) as stored:
        released = set(stored.read().split("\n")) - {""}
    wrong = 0
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(tmp, "include")
            mutate(include, mutant, folder)
            try:
                lost = released - set(layout(clang, source, folder))
            except subprocess.CalledProcessError as e:
                print(mutant[0], "does not compile:", e.stderr)
                return 1
        ok = bool(lost) == mutant[4]
        wrong += not ok
        print("ok  " if ok else "WRONG", mutant[0], len(lost), "lines lost")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
