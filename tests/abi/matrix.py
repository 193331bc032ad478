# SPDX-License-Identifier: Apache-2.0
#
# Gate 3 of the ABI: hosts and plugins of imagined minors, each with each.
#
#   matrix.py HOST=EXE... PLUGIN=SO...     names: host-1.0 host-1.1 plugin-1.0 plugin-1.1 ...
#
# What must hold: both speak the older minor; lists are walked by the caller's stride; fields that
# one side does not know are zero; what is asked for and not known is refused, never ignored; an old
# host and the next major are refused with both numbers.
import subprocess
import sys

UNSUPPORTED, OK = "-2", "0"
DIES = ["null-0", "null-1", "null-2"]


def facts(host, plugin):
    done = subprocess.run([host, plugin], capture_output=True, text=True, timeout=120)
    found = {"die": [], "exit": done.returncode}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        if key == "die":
            found["die"].append(value)
        else:
            found[key] = value
    return found


def spoken(host, plugin):
    """What a pair that can talk must print."""
    both = "1" if host == plugin == "1.1" else "0"
    expected = {"exit": 0, "minor": both, "die": list(DIES), "memory": f"{OK} guard=1 size=1",
                "submit": OK}
    if host == "1.1":
        links = [1000, 1001, 1002] if plugin == "1.1" else [0, 0, 0]
        expected["die"] = [f"{die} link={link}" for die, link in zip(DIES, links)]
        expected["largest"] = "4096" if plugin == "1.1" else "0"
        expected["hint"] = OK if plugin == "1.1" else "absent"
        expected["priority"] = OK if plugin == "1.1" else UNSUPPORTED
    return expected


def refused(found, numbers):
    text = found.get("refused", "")
    return found["exit"] == 1 and all(number in text for number in numbers)


def main(pairs):
    files = dict(pair.split("=", 1) for pair in pairs)
    wrong = 0
    for host in ("1.0", "1.1"):
        for plugin in ("1.0", "1.1", "1.1-only", "2.0"):
            found = facts(files["host-" + host], files["plugin-" + plugin])
            if plugin == "2.0":
                ok = refused(found, ["2.0", host])
            elif plugin == "1.1-only" and host == "1.0":
                ok = refused(found, ["1.1", "1.0"])
            else:
                ok = found == spoken(host, plugin[:3])
            wrong += not ok
            print("ok   " if ok else "WRONG", f"host {host}, plugin {plugin}:",
                  found.get("refused", f"speak 1.{found.get('minor')}") if ok else found)
    for name in sorted(n for n in files if n.startswith("plugin-breaks")):
        found = facts(files["host-1.1"], files[name])
        ok = found != spoken("1.1", "1.0")
        wrong += not ok
        print("ok   " if ok else "WRONG", f"host 1.1 notices {name}:", found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
