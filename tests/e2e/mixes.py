#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random mixes of concurrent requests: every answer equals that of the same request alone.

mixes.py PANTHEON [--mixes N] [--seed S]. A mix is 2 to 9 requests, more than there are slots, that
start at random moments; some clients leave in the middle. Prompts share beginnings, so that cached
prefixes are met. The seed is printed, and gives the same mixes again.
"""
import argparse
import concurrent.futures
import random
import sys
import time

import harness

WORDS = ("the a dragon castle plugin server model die memory story little went said garden "
         "because token answer river light").split()


def request(rng):
    if rng.random() < 0.3:
        ids = [rng.randrange(40, 300) for _ in range(rng.choice((1, 2, 31, 32, 33, 64, 65)))]
        body = {"prompt": ids, "logprobs": rng.choice((0, 3))}
    else:
        start = rng.choice(("Once upon a time ", "The server ", ""))
        words = rng.choice((1, 3, 10, 40, 120))
        body = {"prompt": start + " ".join(rng.choice(WORDS) for _ in range(words))}
    body.update(max_tokens=rng.choice((1, 2, 7, 16, 33)), ignore_eos=rng.random() < 0.5,
                temperature=rng.choice((0, 0, 0.7, 1.3)), seed=rng.randrange(1 << 40))
    if rng.random() < 0.2:
        body["repeat_penalty"] = 1.2
    if rng.random() < 0.2:
        body["stop"] = [rng.choice(WORDS)[:3]]
    return body


def outcome(answer):
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"], choice["logprobs"]


def alone(server, body):
    return outcome(server.post("/v1/completions", body).expect(200).json())


def mixed(server, body, mood, delay):
    """What came; None for a client that left."""
    time.sleep(delay)
    if mood == "whole":
        return alone(server, body)
    parts = []
    for part in server.stream("/v1/completions", body):
        parts.append(part)
        if mood == "leave" and len(parts) > 2:
            return None
    last = [p for p in parts if p != "[DONE]"][-1]["choices"][0]["finish_reason"]
    tokens = [p["choices"][0]["logprobs"] for p in parts[:-1] if p["choices"][0]["logprobs"]]
    merged = None
    if "logprobs" in body:
        merged = {key: sum((t[key] for t in tokens), []) for key in tokens[0]} if tokens else None
    return harness.joined(parts), last, merged


def one_mix(server, pool, expected, rng, number):
    chosen = [rng.randrange(len(pool)) for _ in range(rng.randrange(2, 10))]
    with concurrent.futures.ThreadPoolExecutor(len(chosen)) as threads:
        futures = []
        for at in chosen:
            mood = rng.choice(("whole", "whole", "stream", "stream", "leave"))
            futures.append((at, threads.submit(mixed, server, pool[at], mood,
                                               rng.random() * 0.02)))
        for at, future in futures:
            got = future.result()
            if got is not None:
                harness.equal(got, expected[at], f"mix {number}, request {pool[at]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("exe")
    parser.add_argument("--mixes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261129)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    mixes = max(args.mixes // 4, 1) if harness.SANITIZED and args.mixes <= 60 else args.mixes
    cases = harness.Cases()
    print(f"seed {args.seed}, {mixes} mixes")
    pool = [request(rng) for _ in range(16 + mixes // 4)]
    with harness.Folder() as folder:
        with harness.Server(args.exe, folder, ["--model", harness.DEMO, "--context", "512",
                                               "--slots", "4"]) as server:
            expected = [alone(server, body) for body in pool]
            with cases.case("alone twice is the same"):
                harness.equal([alone(server, body) for body in pool], expected)
            with cases.case("the requests are not trivial"):
                assert len({e[0] for e in expected}) > len(pool) // 2, expected
            for number in range(mixes):
                with cases.case(f"mix {number}"):
                    one_mix(server, pool, expected, rng, number)
    cases.finish()


if __name__ == "__main__":
    main()
