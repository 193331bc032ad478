#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server on scripted dies: text as written, and every misfortune answered in order."""
import os
import sys
import threading
import time

import harness
from harness import contains, equal

TEXT = "/v1/completions"


def profile(folder, options, models=(("m", "chaos:0"),), name="chaos.yaml", more=""):
    """A profile of the chaos plugin and the demo model under these names, each on its die."""
    lines = ["plugins:", f"  chaos: {{ options: {{ {options} }} }}", "models:"]
    for model, die in models:
        lines += [f"  - {{ name: {model}, file: {harness.DEMO}, context: 512, slots: 2, "
                  f"dies: [\"{die}\"] }}"]
    return harness.profile(folder, name, "\n".join(lines) + "\n" + more)


def serve(exe, folder, options, **more):
    wait = more.pop("wait", True)
    before = ["--profile", profile(folder, options, **more)]
    return harness.Server(exe, folder, [], before, wait=wait)


def stream(server, model="m", tokens=200):
    return server.stream(TEXT, {"model": model, "prompt": "Once", "max_tokens": tokens,
                                "ignore_eos": True})


def ask(server, model="m", tokens=8):
    return server.post(TEXT, {"model": model, "prompt": "Once", "max_tokens": tokens,
                              "ignore_eos": True})


def scripted(exe, cases):
    with harness.Folder() as folder, cases.case("run and serve give the scripted text"):
        # Ids 263 and up are pieces of text; the same list gives the same text, whatever is asked.
        options = 'tokens: "300 301 302 303"'
        with serve(exe, folder, options) as server:
            one = server.complete("Once", max_tokens=4, ignore_eos=True, logprobs=1)
            two = server.complete("Another prompt, longer", max_tokens=4, ignore_eos=True)
            text = harness.text_of(one)
            assert text, one
            equal(harness.text_of(two), text)
            equal(harness.joined(stream(server, tokens=4)), text)
        args = ["--profile", profile(folder, options), "run", harness.DEMO, "-p", "hi", "-n", "4"]
        contains(harness.run(exe, args, folder).expect(0).out, text.strip())
    with harness.Folder() as folder, cases.case("seeded text repeats with its seed"):
        texts = []
        for seed in (1, 1, 2):
            with serve(exe, folder, f"seed: {seed}, token_min: 263, jitter_ns: 2ms") as server:
                texts.append(ask(server).expect(200).json()["choices"][0]["text"])
        equal(texts[0], texts[1])
        assert texts[0] != texts[2], texts


def examples(exe, cases):
    folder_of = os.path.join(harness.ROOT, "plugins", "chaos", "profiles")
    with harness.Folder() as folder, cases.case("the example profiles are right"):
        args = ["--profile", os.path.join(folder_of, "eight_dies.yaml"), "devices"]
        out = harness.run(exe, args, folder).expect(0).out
        equal(out.count("scripted K80 die"), 8)
        args = ["--profile", os.path.join(folder_of, "flaky.yaml"), "devices"]
        contains(harness.run(exe, args, folder).expect(0).out, "chaos:1")
    for option in ("step_nss: 1", "die7.bytes: 1GiB", "links: cable", "bytes: many"):
        with harness.Folder() as folder, cases.case(f"refused by name: {option}"):
            args = ["--profile", profile(folder, option), "devices"]
            done = harness.run(exe, args, folder)
            assert done.code != 0, done.out
            contains(done.err, option.split(":", maxsplit=1)[0])


def losses(exe, cases):
    with harness.Folder() as folder, cases.case("a die lost in mid-stream; the other one serves"):
        models = (("m", "chaos:0"), ("n", "chaos:1"))
        options = "dies_per_card: 2, step_ns: 2ms, token_min: 263, die0.lose_step: 20"
        with serve(exe, folder, options, models=models) as server:
            events = list(stream(server))
            equal(events[-1]["error"]["code"], "device_lost", str(events[-1]))
            contains(events[-1]["error"]["message"], "the script takes die 0 away")
            ask(server).error(503, "device_lost")
            ask(server, "n").expect(200)
            equal(server.get("/ready").status, 503)
            equal(server.get("/health").status, 200)
    with harness.Folder() as folder, cases.case("a failed step ends its stream, more is served"):
        options = "step_ns: 2ms, token_min: 263, fail_step: 20, fail_op: 6"
        with serve(exe, folder, options) as server:
            events = list(stream(server))
            contains(events[-1]["error"]["message"], "step 20 in op 6")
            ask(server).expect(200)
    with harness.Folder() as folder, cases.case("out of memory at the load says what was asked"):
        args = ["--profile", profile(folder, "oom_at: 2"), "serve", "--port", "0"]
        contains(harness.run(exe, args, folder).expect(harness.MEMORY).err, "refuses allocation 2")


def judged(exe, cases):
    for plugin, options in (("cpu", ""), ("chaos", "step_ns: 1ms, fail_step: 30"), ("null", "")):
        with harness.Folder() as folder, cases.case(f"judged, {plugin} and the server behave"):
            path = harness.profile(folder, "judged.yaml",
                                   f"plugins: {{ {plugin}: {{ options: {{ {options} }} }} }}\n"
                                   f"models: [{{ name: m, file: {harness.DEMO}, context: 256 }}]\n")
            env = folder.environment(PANTHEON_HAL_VALIDATE="1")
            with harness.Server(exe, folder, [], ["--profile", path], env=env) as server:
                asked = [threading.Thread(target=ask, args=(server, "m", 24)) for _ in range(6)]
                for thread in asked:
                    thread.start()
                for thread in asked:
                    thread.join()
                list(stream(server, tokens=20))
                server.stop()
                for told in ("misuse by pantheon", "bug in the plugin"):
                    assert told not in server.log(), server.log()


def main():
    cases = harness.Cases()
    start = time.monotonic()
    for part in (scripted, examples, losses, judged):
        part(sys.argv[1], cases)
    print(f"{time.monotonic() - start:.1f} s")
    cases.finish()


if __name__ == "__main__":
    main()
