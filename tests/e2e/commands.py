#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands that look: devices, models, bench, profile, doctor, versions; words and exit codes."""
import json
import os
import shutil
import sys

import gguf
import harness
from harness import contains, equal


def usage(exe, folder, cases):
    with cases.case("--help is 0, what cannot be parsed is 2, and both say how it goes"):
        contains(harness.run(exe, ["--help"], folder).expect(0).out, "serve")
        contains(harness.run(exe, ["serve", "--help"], folder).expect(0).out, "--port")
        for args in ([], ["nosuch"], ["serve", "--nosuch"], ["run", "--temp", "hot"],
                     ["serve", "--port", "70000"], ["models"], ["bench"], ["plugin", "nosuch"],
                     ["run", "--context", "0"]):
            done = harness.run(exe, args, folder).expect(harness.USAGE)
            assert done.err and not done.out, (args, done.out)
    with cases.case("--version names the ABI and build ids of program and plugins"):
        found = json.loads(harness.run(exe, ["--version", "--json"], folder).expect(0).out)
        assert len(found["build_id"]) == 40 and found["version"], found
        cpu = [p for p in found["plugins"] if p["name"] == "cpu"]
        assert len(cpu) == 1 and len(cpu[0]["build_id"]) == 40, found
        text = harness.run(exe, ["--version"], folder).expect(0).out
        contains(text, found["build_id"])
        contains(text, f"HAL {found['abi_major']}.{found['abi_minor']}")


def devices(exe, folder, cases):
    with cases.case("devices lists the die with its memory; a rule of the profile acts"):
        found = json.loads(harness.run(exe, ["devices", "--json"], folder).expect(0).out)["dies"]
        die = next(d for d in found if d["id"] == "cpu:0")
        equal(die["state"], "ready")
        assert 0 < die["bytes_usable"] <= die["bytes_total"], die
        path = harness.profile(folder, "d.yaml", "dies: [{ match: 'cpu:*', bytes: 64MiB }]\n")
        found = json.loads(harness.run(exe, ["--profile", path, "devices", "--json"],
                                       folder).expect(0).out)["dies"]
        equal(next(d for d in found if d["id"] == "cpu:0")["bytes_usable"], 64 << 20)
        contains(harness.run(exe, ["devices"], folder).expect(0).out, "cpu:0")
    with cases.case("--backend says which plugins and why, in one line"):
        out = harness.run(exe, ["--backend"], folder).expect(0).out
        equal((out.splitlines()[0].startswith("using cpu ("), "null" in out.splitlines()[0]),
              (True, False), out)


def models(exe, folder, cases):
    with cases.case("models show: what is in the file"):
        found = json.loads(harness.run(exe, ["models", "show", harness.DEMO, "--json"],
                                       folder).expect(0).out)[0]
        model = gguf.File(harness.DEMO)
        equal((found["architecture"], found["tensors"]), ("llama", len(model.tensors)))
        contains(harness.run(exe, ["models", "show", harness.DEMO], folder).expect(0).out, "llama")
    with cases.case("models verify: 0 for a good file, 4 with the problem for a bad one"):
        harness.run(exe, ["models", "verify", harness.DEMO], folder).expect(0)
        with open(harness.DEMO, "rb") as file:
            cut = folder.file("cut.gguf", file.read()[:-100])
        done = harness.run(exe, ["models", "verify", harness.DEMO, cut], folder)
        done.expect(harness.MODEL)
        contains(done.out, "problem")
        harness.run(exe, ["models", "show", cut], folder).expect(harness.MODEL)
    with cases.case("models list: good and bad files of a folder, each with its state"):
        place = folder.file("models")
        os.mkdir(place)
        shutil.copy(harness.DEMO, os.path.join(place, "good.gguf"))
        folder.file("models/bad.gguf", b"GGUF and nothing")
        done = harness.run(exe, ["models", "list", place, "--json"], folder).expect(0)
        states = {os.path.basename(m["path"]): m for m in json.loads(done.out)}
        equal(sorted(states), ["bad.gguf", "good.gguf"])
        assert states["bad.gguf"]["reason"] and not states["good.gguf"].get("reason"), states


def measures(exe, folder, cases):
    with cases.case("bench: both speeds, as text and as JSON"):
        args = ["bench", harness.DEMO, "--prompt-tokens", "32", "--decode-tokens", "8"]
        found = json.loads(harness.run(exe, [*args, "--json"], folder).expect(0).out)
        assert found["prompt"]["tokens_per_s"] > 0 and found["decode"]["tokens_per_s"] > 0, found
        equal(found["die"], "cpu:0")
        contains(harness.run(exe, [*args, "--batch", "3"], folder).expect(0).out, "tokens/s")
    with cases.case("doctor: named checks, 1 when one fails"):
        found = json.loads(harness.run(exe, ["doctor", "--json"], folder).expect(0).out)
        verdicts = {c["check"]: c["verdict"] for c in found}
        equal((verdicts["plugins"], verdicts["dies"]), ("ok", "ok"), str(found))
        path = harness.profile(folder, "bad.yaml", "nosuch: 1\n")
        done = harness.run(exe, ["--profile", path, "doctor"], folder).expect(1)
        contains(done.out, "nosuch")


def profiles(exe, folder, cases):
    with cases.case("profile show: values with their origins, flag over environment over file"):
        path = harness.profile(folder, "p.yaml", "server: { host: 127.0.0.2, port: 1000 }\n")
        env = folder.environment(PANTHEON_PORT="2000", PANTHEON_PROFILE=path)
        done = harness.run(exe, ["profile", "show", "--json"], folder, env=env).expect(0)
        rows = {r["key"]: (r["value"], r["origin"]) for r in json.loads(done.out)}
        equal(rows["server.port"], ("2000", "environment PANTHEON_PORT"))
        equal(rows["server.host"], ("127.0.0.2", f"profile {path}:2"))
    with cases.case("a profile is found in the user's folder; check lists the places without one"):
        done = harness.run(exe, ["profile", "check"], folder).expect(0)
        place = os.path.join(folder.path, "pantheon", "profile.yaml")
        contains(done.out, place)
        os.makedirs(os.path.dirname(place))
        shutil.copy(os.path.join(folder.path, "p.yaml"), place)
        contains(harness.run(exe, ["profile", "check"], folder).expect(0).out, "no mistakes")
        rows = json.loads(harness.run(exe, ["profile", "show", "--json"], folder).expect(0).out)
        equal(next(r["value"] for r in rows if r["key"] == "server.port"), "1000")
    with cases.case("a profile's model is served under its name and alias, flags win"):
        path = harness.profile(folder, "m.yaml", "models:\n  - name: tiny\n    file: "
                               f"{harness.DEMO}\n    aliases: [other]\n    context: 128\n"
                               "    slots: 2\nserver: { port: 1 }\n")
        with harness.Server(exe, folder, before=["--profile", path]) as server:
            one = server.get("/v1/models/other").expect(200).json()
            equal((one["id"], one["meta"]["context"], one["meta"]["slots"]), ("tiny", 128, 2))
            equal(server.chat("Hello", model="other", max_tokens=1)["model"], "tiny")


def main():
    cases = harness.Cases()
    exe = os.path.abspath(sys.argv[1])
    for part in (usage, devices, models, measures, profiles):
        with harness.Folder() as folder:
            part(exe, folder, cases)
    cases.finish()


if __name__ == "__main__":
    main()
