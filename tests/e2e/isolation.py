#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""isolation: process. The same answers, and a plugin's death is one request's error."""
import json
import os
import signal
import sys
import time

import harness
from harness import contains, equal

PROFILE = "plugins: {{ {plugin}: {{ isolation: process{options} }} }}\n"
PROMPTS = ("Which command lists the dies?", "Tell me a story.", "What does --port do?")


def isolated(folder, plugin="cpu", options=""):
    text = PROFILE.format(plugin=plugin, options=options)
    return ["--profile", harness.profile(folder, "isolated.yaml", text)]


def backend_hosts(server):
    """Pids of the children of a server that are backend hosts."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                comm, rest = file.read().rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        if int(fields[1]) == server.process.pid and "pantheon-backen" in comm and fields[0] != "Z":
            found.append(int(name))
    return found


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def until(what, seconds=30):
    end = time.monotonic() + seconds * harness.SLOW
    while not what():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.01)


def same_answers(exe, cases):
    args = ["--model", harness.DEMO, "--context", "512"]
    with cases.case("greedy answers are those of the plugin in the server's process"):
        answers = []
        with harness.Folder() as folder:
            for before in (["--backend-plugin", "cpu"], isolated(folder)):
                with harness.Server(exe, folder, args, before) as server:
                    answers.append([harness.text_of(server.chat(p, max_tokens=60))
                                    for p in PROMPTS])
                    equal(len(backend_hosts(server)), len(answers) - 1)
        equal(answers[1], answers[0])
        contains(answers[1][0], "devices")


def next_answer(server, seconds=30):
    """The next request, tried again while the model loads; how long it took to be answered."""
    start = time.monotonic()
    body = {"messages": [{"role": "user", "content": PROMPTS[0]}], "temperature": 0}
    while True:
        answer = server.post("/v1/chat/completions", body)
        if answer.status == 200:
            return harness.text_of(answer.json()), time.monotonic() - start
        assert answer.status == 503, f"{answer.status}: {answer.body}"
        assert time.monotonic() - start < seconds * harness.SLOW, answer.body
        time.sleep(0.01)


def killed(exe, cases):
    with cases.case("kill -9 of the backend host in mid-stream: an error event, then answers"):
        with harness.Folder() as folder:
            with harness.Server(exe, folder, ["--model", harness.DEMO], isolated(folder)) as server:
                pid = backend_hosts(server)[0]
                body = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True}
                seen = []
                for event in server.stream("/v1/completions", body):
                    seen.append(event)
                    if len(seen) == 5:
                        os.kill(pid, signal.SIGKILL)
                errors = [e["error"] for e in seen if e != "[DONE]" and "error" in e]
                equal(len(errors), 1, str(seen[-3:]))
                contains(errors[0]["message"], "SIGKILL")
                text, took = next_answer(server)
                contains(text, "devices")
                print(f"     the next request was answered after {took:.2f} s")
                assert backend_hosts(server) != [pid]
                contains(server.log(), "SIGKILL")
    with cases.case("kill -9 while idle, twice: the next request is answered"):
        with harness.Folder() as folder:
            with harness.Server(exe, folder, ["--model", harness.DEMO], isolated(folder)) as server:
                for _ in range(2):
                    pid = backend_hosts(server)[0]
                    os.kill(pid, signal.SIGKILL)
                    until(lambda old=pid: gone(old))
                    contains(next_answer(server)[0], "devices")


def crashes(exe, cases):
    with cases.case("a plugin that dies again and again is given up, with its last words"):
        with harness.Folder() as folder:
            path = os.path.join(harness.build_root(exe), "tests", "fixtures", "fragile.so")
            before = isolated(folder, path, ", options: { deed: abort_in_submit, at: 4 }")
            args = ["--model", harness.DEMO, "--context", "256"]
            with harness.Server(exe, folder, args, before) as server:
                deaths, refusal = 0, ""
                for _ in range(3000):
                    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 50,
                                                             "ignore_eos": True})
                    assert answer.status != 200, "null cannot have drawn 50 tokens"
                    refusal = answer.json()["error"]["message"]
                    if "started again 3 times" in refusal:
                        break
                    deaths += "the last thing it says" in refusal
                    time.sleep(0.01)
                contains(refusal, "the last thing it says")
                equal(deaths, 4, "one process and three more, then the refusal")
                equal(server.get("/health").status, 200)
                equal(server.get("/v1/models").json()["data"][0]["status"]["state"], "failed")


def dies_with_server(exe, cases):
    with cases.case("the backend host dies with its server"):
        with harness.Folder() as folder:
            server = harness.Server(exe, folder, ["--model", harness.DEMO], isolated(folder))
            pid = backend_hosts(server)[0]
            server.kill()
            until(lambda: gone(pid))
    with cases.case("and ends with it in order"):
        with harness.Folder() as folder:
            with harness.Server(exe, folder, ["--model", harness.DEMO], isolated(folder)) as server:
                pid = backend_hosts(server)[0]
            until(lambda: gone(pid))
            assert "backend host" not in server.log(), server.log()


def says_so(exe, cases):
    with harness.Folder() as folder, cases.case("profile, devices, plugin list and doctor say so"):
        before = isolated(folder)
        harness.run(exe, [*before, "profile", "check"], folder).expect(0)
        shown = json.loads(harness.run(exe, [*before, "profile", "show", "--json"], folder).out)
        values = {s["key"]: s["value"] for s in shown}
        equal(values["plugins.cpu.isolation"], "process")
        dies = json.loads(harness.run(exe, [*before, "devices", "--json"], folder).expect(0).out)
        equal(dies["dies"][0]["isolation"], "process")
        assert dies["dies"][0]["pid"] > 1
        listed = json.loads(harness.run(exe, [*before, "plugin", "list", "--json"], folder).out)
        equal([p["isolation"] for p in listed["plugins"] if p.get("name") == "cpu"], ["process"])
        checks = json.loads(harness.run(exe, [*before, "doctor", "--json"], folder).out)
        found = [c for c in checks if c["check"] == "isolation"][0]
        equal(found["verdict"], "ok")
        contains(found["found"], "pantheon-backend-host")


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    for part in (same_answers, killed, crashes, dies_with_server, says_so):
        part(exe, cases)
    cases.finish()


if __name__ == "__main__":
    main()
