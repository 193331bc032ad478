#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM lets running answers end and refuses new ones; a second signal cancels what runs."""
import signal
import sys
import time

import harness
from harness import equal

TEXT = "/v1/completions"


def start_stream(server, tokens):
    stream = server.stream(TEXT, {"prompt": "Once upon a time", "max_tokens": tokens,
                                  "ignore_eos": True, "temperature": 0})
    return stream, [next(stream) for _ in range(3)]


def refused(server):
    """New requests are soon refused: 503, or no connection."""
    for _ in range(100):
        try:
            answer = server.post(TEXT, {"prompt": "x", "max_tokens": 1})
        except ConnectionError:
            return
        if answer.status != 200:
            answer.error(503)
            return
        time.sleep(0.01)
    raise AssertionError("new requests are answered during the drain")


def drains(exe, cases):
    with harness.Folder() as folder, cases.case("SIGTERM: a stream ends whole, none starts"):
        args = ["--model", harness.DEMO, "--context", "2048"]
        with harness.Server(exe, folder, args) as server:
            whole = server.complete("Once upon a time", max_tokens=1200, ignore_eos=True)
            stream, parts = start_stream(server, 1200)
            server.signal(signal.SIGTERM)
            server.line("no new requests", 20)
            refused(server)
            parts += list(stream)
            equal(parts[-1], "[DONE]")
            equal(harness.joined(parts), harness.text_of(whole))
            equal(parts[-2]["choices"][0]["finish_reason"], "length")
            equal(server.wait(), 0, server.log())


def cancels(exe, cases):
    with harness.Folder() as folder, cases.case("a second signal cancels: an error event"):
        path = harness.make_gguf(exe, folder, "small", "F16")
        with harness.Server(exe, folder, ["--model", path]) as server:
            stream, _ = start_stream(server, 8000)
            server.signal(signal.SIGINT)
            server.line("no new requests", 20)
            start = time.monotonic()
            server.signal(signal.SIGTERM)
            rest = list(stream)
            equal(rest[-1]["error"]["code"], "cancelled")
            equal(server.wait(), 0, server.log())
            assert time.monotonic() - start < 10 * harness.SLOW, "it did not cancel at once"


def idle_and_loading(exe, cases):
    with harness.Folder() as folder, cases.case("SIGTERM with nothing to do ends at once"):
        with harness.Server(exe, folder, ["--model", harness.DEMO]) as server:
            kept = server.connect()
            kept.request("GET", "/health")
            kept.getresponse().read()
            start = time.monotonic()
            server.stop()
            assert time.monotonic() - start < 5 * harness.SLOW
            kept.close()
    with harness.Folder() as folder, cases.case("SIGTERM while a model loads"):
        path = harness.make_gguf(exe, folder, "small", "Q8_0")
        with harness.Server(exe, folder, ["--model", path], wait=False) as server:
            server.stop()


def main():
    cases = harness.Cases()
    for part in (drains, cancels, idle_and_loading):
        part(sys.argv[1], cases)
    cases.finish()


if __name__ == "__main__":
    main()
