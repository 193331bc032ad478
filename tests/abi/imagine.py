# SPDX-License-Identifier: Apache-2.0
#
# Headers of minors that do not exist yet: today's contract as 1.0, 1.1 with a proper append of each
# kind, and 2.0. Growth is tried on them from the first day, not at the first release that needs it.
#
#   imagine.py INCLUDE OUT MAJOR MINOR [STAMP]
#
# 1.1 appends a field to an out struct that is alone (pn_memory_status), to one that stands in lists
# (pn_device_info), to an in struct of the step path (pn_submit), and an optional slot (pn_plugin).
import os
import shutil
import sys

APPENDS = [
    ("device.h", "pn_memory_status", 56, "  uint64_t largest_free;"),
    ("device.h", "pn_device_info", 328, "  uint64_t link_bytes_per_s;"),
    ("submit.h", "pn_submit", 48, "  uint64_t priority;"),
    ("plugin.h", "pn_plugin", 168, "  pn_status (*device_hint)(pn_device, uint64_t, pn_error *);"),
]


def replace_once(path, find, put):
    with open(path, encoding="ascii") as file:
        text = file.read()
    if text.count(find) != 1:
        sys.exit(f"{path}: {find!r} is there {text.count(find)} times, expected once")
    with open(path, "w", encoding="ascii") as file:
        file.write(text.replace(find, put))


def append(path, struct, size, field):
    end = f"}} {struct}; PN_PIN({struct}, {size});"
    replace_once(path, end, f"#if PN_ABI_MINOR >= 1\n{field}\n#endif\n}} {struct};\n"
                 f"PN_PIN({struct}, PN_ABI_MINOR >= 1 ? {size + 8} : {size});")


def imagine(include, out, major, minor):
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(include, out)
    folder = os.path.join(out, "pantheon")
    core = os.path.join(folder, "core.h")
    replace_once(core, "#define PN_ABI_MAJOR 0\n", f"#define PN_ABI_MAJOR {major}\n")
    replace_once(core, "#define PN_ABI_MINOR 2\n", f"#define PN_ABI_MINOR {minor}\n")
    for name, struct, size, field in APPENDS if minor == "1" else []:
        append(os.path.join(folder, name), struct, size, field)


if __name__ == "__main__":
    imagine(*sys.argv[1:5])
    for stamp in sys.argv[5:]:
        with open(stamp, "w", encoding="ascii") as out:
            out.write("/* see imagine.py */\n")
