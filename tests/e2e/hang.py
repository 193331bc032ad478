#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Case A26: a call into a plugin that never returns. Its requests are answered, the server says that
it needs a restart, other models are served on, and it ends when asked to."""
import signal
import sys
import threading
import time

import harness
from harness import contains, equal

TEXT = "/v1/completions"
DEADLINE_S = 1 if harness.SLOW == 1 else 5


def profile(folder, options, first="chaos"):
    """Model m on the scripted die, n on the processor; which one is loaded first may matter."""
    models = {"chaos": ("m", "chaos:0"), "cpu": ("n", "cpu:0")}
    order = [first, "cpu" if first == "chaos" else "chaos"]
    lines = ["plugins:", f"  chaos: {{ options: {{ token_min: 263, {options} }} }}", "  cpu: {}",
             f"server: {{ call_deadline_s: {DEADLINE_S} }}", "models:"]
    for key in order:
        name, die = models[key]
        lines.append(f"  - {{ name: {name}, file: {harness.DEMO}, context: 512, slots: 1, "
                     f"dies: [\"{die}\"] }}")
    return harness.profile(folder, "hang.yaml", "\n".join(lines) + "\n")


def serve(exe, folder, options, wait=True, **more):
    return harness.Server(exe, folder, [], ["--profile", profile(folder, options, **more)],
                          wait=wait)


def ask(server, model, tokens=8):
    return server.post(TEXT, {"model": model, "prompt": "Once", "max_tokens": tokens,
                              "ignore_eos": True})


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds * harness.SLOW
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def says_restart(server):
    answer = server.get("/health").expect(200).json()
    if not answer.get("restart_needed"):
        return False
    equal(answer["status"], "degraded")
    contains(answer["reason"], "plugin chaos did not return")
    return True


def states(server):
    return {m["id"]: m["state"] for m in server.get("/ready").json()["models"]}


def goes_on(server):
    """What holds once the plugin was given up."""
    wait_for(lambda: says_restart(server))
    wait_for(lambda: states(server)["n"] == "ready")
    ask(server, "m").error(503, "device_lost")
    ask(server, "n").expect(200)
    equal(server.get("/ready").status, 503)
    equal(states(server), {"m": "failed", "n": "ready"})
    contains(server.log(), "a call did not return")


def ends(server):
    start = time.monotonic()
    server.signal(signal.SIGTERM)
    equal(server.wait(60), 0, server.log())
    took = time.monotonic() - start
    assert took < 10 * harness.SLOW, f"the end took {took:.1f} s"


def in_mid_stream(exe, cases):
    with harness.Folder() as folder, cases.case("A26: in mid-stream, with others waiting"):
        with serve(exe, folder, "step_ns: 5ms, hang_step: 37") as server:
            waiting, answers = [], []
            stream = server.stream(TEXT, {"model": "m", "prompt": "Once", "max_tokens": 200,
                                          "ignore_eos": True})
            events = [next(stream)]
            for _ in range(3):
                waiting.append(threading.Thread(target=lambda: answers.append(ask(server, "m"))))
                waiting[-1].start()
            events += list(stream)
            assert len(events) > 10, events  # what was there before was given out
            equal(events[-1]["error"]["code"], "device_lost", str(events[-1]))
            contains(events[-1]["error"]["message"], "did not return from a call")
            for thread in waiting:
                thread.join()
            for answer in answers:
                answer.error(503, "device_lost")
            equal(len(answers), 3)
            goes_on(server)
            ends(server)


def in_other_calls(exe, cases):
    serving = {"queue_submit": 'hang: "queue_submit:9"', "queue_query": 'hang: "queue_query:9"'}
    for call, options in serving.items():
        with harness.Folder() as folder, cases.case(f"A26: in {call}"):
            with serve(exe, folder, options) as server:
                ask(server, "m", 100).error(503, "device_lost")
                goes_on(server)
                ends(server)
    with harness.Folder() as folder, cases.case("A26: while idle"):
        with serve(exe, folder, 'hang: "memory_status:4"') as server:
            goes_on(server)
            ends(server)
    for call in ("program_create", "buffer_create", "program_status"):
        with harness.Folder() as folder, cases.case(f"A26: while loading, in {call}"):
            with serve(exe, folder, f"hang: {call}", wait=False) as server:
                goes_on(server)
                ends(server)


def at_the_end(exe, cases):
    for call in ("queue_destroy", "buffer_destroy", "device_close:2", "shutdown"):
        with harness.Folder() as folder, cases.case(f"A26: at the end, in {call}"):
            with serve(exe, folder, f'hang: "{call}"') as server:
                ask(server, "m").expect(200)
                ends(server)


def main():
    cases = harness.Cases()
    start = time.monotonic()
    for part in (in_mid_stream, in_other_calls, at_the_end):
        part(sys.argv[1], cases)
    print(f"{time.monotonic() - start:.1f} s")
    cases.finish()


if __name__ == "__main__":
    main()
