# SPDX-License-Identifier: Apache-2.0
#
# Each public header compiles alone, as C11, C11 with short enums, C++17 and C++20, without hidden
# padding and without a warning, with every compiler given.
#
#   headers.py INCLUDE CC CXX [CLANG CLANGXX]
import glob
import os
import shutil
import subprocess
import sys

WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Wpadded", "-Wconversion", "-Werror", "-fsyntax-only"]


def main(include, *compilers):
    headers = sorted(os.path.basename(h) for h in glob.glob(f"{include}/pantheon/*.h"))
    if len(headers) < 16:
        return f"expected the HAL's headers in {include}/pantheon, found {len(headers)}"
    failed = 0
    for i, compiler in enumerate(compilers):
        if shutil.which(compiler.split()[-1]) is None:
            print(f"{compiler} is not installed: left out")
            continue
        modes = [["-x", "c++", "-std=c++17"], ["-x", "c++", "-std=c++20"]]
        if i % 2 == 0:
            modes = [["-x", "c", "-std=c11"], ["-x", "c", "-std=c11", "-fshort-enums"]]
        for mode in modes:
            # Alone, one after the other in one unit, and each twice: guards and order.
            units = [f"#include <pantheon/{h}>\n" for h in headers]
            whole = "".join(units + units[::-1])
            units = units + [whole] if mode == modes[0] else [whole]
            for unit in units:
                run = subprocess.run([*compiler.split(), *mode, *WARN, "-I", include, "-"],
                                     input=unit, text=True, capture_output=True)
                if run.returncode != 0:
                    failed += 1
                    print(compiler, " ".join(mode), unit, run.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
