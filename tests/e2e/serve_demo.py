#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo model behind the API: answers, streams, logprobs, stops, seeds, limits, refusals."""
import sys

import harness
from harness import equal, finish_of, joined, text_of

CONTEXT = 384
STORY = "Tell me a story."


def answers(server, cases):
    with cases.case("a question is answered with the right command"):
        answer = server.chat("Which command lists the dies?", max_tokens=64)
        harness.contains(text_of(answer), "devices")
        equal(finish_of(answer), "stop")
        usage = answer["usage"]
        equal(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        assert answer["id"].startswith("chatcmpl-") and answer["object"] == "chat.completion"
        assert answer["timings"]["predicted_per_second"] > 0, answer["timings"]
    with cases.case("ids differ between answers"):
        equal(len({server.chat("Hello", max_tokens=1)["id"] for _ in range(3)}), 3)
    with cases.case("echo puts the prompt's text first"):
        answer = server.complete("The server", max_tokens=4, echo=True)
        assert text_of(answer).startswith("The server"), text_of(answer)
        plain = server.complete("The server", max_tokens=4)
        equal(text_of(answer), "The server" + text_of(plain))
    with cases.case("ignore_eos goes on past the end"):
        short = server.chat("Which command lists the dies?")
        long = server.chat("Which command lists the dies?", ignore_eos=True,
                           max_tokens=short["usage"]["completion_tokens"] + 8)
        equal(finish_of(long), "length")
        assert text_of(long).startswith(text_of(short)), (text_of(short), text_of(long))


def streams(server, cases):
    for name, sampling in (("greedy", {"temperature": 0}),
                           ("sampled", {"temperature": 0.9, "seed": 7})):
        with cases.case(f"a stream is the whole answer in parts: {name}"):
            body = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 80, **sampling}
            whole = server.post("/v1/chat/completions", body).expect(200).json()
            parts = list(server.stream("/v1/chat/completions",
                                       {**body, "stream_options": {"include_usage": True}}))
            equal(joined(parts), text_of(whole))
            equal(parts[0]["choices"][0]["delta"]["role"], "assistant")
            equal(parts[-1], "[DONE]")
            equal((parts[-2]["choices"], parts[-2]["usage"]["completion_tokens"]),
                  ([], whole["usage"]["completion_tokens"]))
            equal(parts[-3]["choices"][0]["finish_reason"], finish_of(whole))
            assert len(parts) > 10, "it came in one piece"
            equal({p["id"] for p in parts[:-1]}, {parts[0]["id"]})
    with cases.case("usage comes only when asked for, and plain completions stream too"):
        body = {"prompt": "Once upon", "temperature": 0, "max_tokens": 20}
        whole = server.post("/v1/completions", body).expect(200).json()
        parts = list(server.stream("/v1/completions", body))
        equal(joined(parts), text_of(whole))
        assert not any(p.get("usage") for p in parts[:-1]), parts
        equal(parts[-1], "[DONE]")


def logprobs(server, cases):
    with cases.case("chat logprobs: bytes join to the text, the best comes first"):
        answer = server.chat(STORY, max_tokens=24, logprobs=True, top_logprobs=4)
        content = answer["choices"][0]["logprobs"]["content"]
        raw = b"".join(bytes(t["bytes"]) for t in content)
        equal(raw.decode(), text_of(answer))
        for token in content:
            tops = [t["logprob"] for t in token["top_logprobs"]]
            equal((len(tops), tops), (4, sorted(tops, reverse=True)))
            equal((token["token"], token["logprob"]),
                  (token["top_logprobs"][0]["token"], tops[0]), "greedy takes the best")
            assert tops[0] <= 0, tops
    with cases.case("logprobs are of the model, not of the sampling parameters"):
        cold = server.complete("Once", max_tokens=1, logprobs=3)
        hot = server.complete("Once", max_tokens=1, logprobs=3, temperature=1.5, seed=3)
        equal(hot["choices"][0]["logprobs"]["top_logprobs"],
              cold["choices"][0]["logprobs"]["top_logprobs"])


def stops(server, cases):
    body = {"messages": [{"role": "user", "content": STORY}], "temperature": 0, "max_tokens": 60}
    answer = server.post("/v1/chat/completions",
                         {**body, "logprobs": True}).expect(200).json()
    text = text_of(answer)
    tokens = [t["token"] for t in answer["choices"][0]["logprobs"]["content"]]
    with cases.case("a stop string over token borders ends the answer before it"):
        tried = 0
        for at in range(2, len(tokens) - 1):
            stop = tokens[at - 1][-2:] + tokens[at][:2]
            if tokens[at - 1] == "" or tokens[at] == "" or len(stop) < 3:
                continue
            wanted = text[:text.index(stop)]
            got = server.post("/v1/chat/completions", {**body, "stop": [stop]}).expect(200).json()
            equal((text_of(got), finish_of(got)), (wanted, "stop"), f"stop {stop!r}")
            parts = list(server.stream("/v1/chat/completions", {**body, "stop": stop}))
            equal(joined(parts), wanted, f"stream, stop {stop!r}")
            tried += 1
            if tried == 6:
                break
        equal(tried, 6, "stop strings tried")
    with cases.case("of several stop strings the first in the text wins"):
        first, second = text[20:24], text[8:12]
        got = server.post("/v1/chat/completions", {**body, "stop": [first, second]}).json()
        equal(text_of(got), text[:min(text.index(first), text.index(second))])
    with cases.case("a stop string that almost matches loses nothing"):
        got = server.post("/v1/chat/completions",
                          {**body, "stop": [text[10:16] + "\u00a7"]}).expect(200).json()
        equal(text_of(got), text)


def seeds(server, cases):
    def draw(seed):
        return text_of(server.chat(STORY, temperature=1.0, top_p=1, min_p=0, top_k=0, seed=seed,
                                   max_tokens=24))
    with cases.case("equal seeds repeat, others differ"):
        texts = [draw(seed) for seed in range(6)]
        equal([draw(seed) for seed in range(6)], texts)
        assert len(set(texts)) >= 4, texts
    with cases.case("without a seed answers differ"):
        assert len({text_of(server.chat(STORY, temperature=1.2, min_p=0, max_tokens=24))
                    for _ in range(6)}) >= 3
    with cases.case("top_k 1 is greedy, and a bias of 100 decides"):
        greedy = server.chat(STORY, max_tokens=12)
        equal(text_of(server.chat(STORY, temperature=1, top_k=1, max_tokens=12)), text_of(greedy))
        forced = server.complete("Once", logit_bias={"40": 100}, max_tokens=6)
        pieces = server.complete([40], max_tokens=1, echo=True, logit_bias={"40": 100})
        equal(text_of(pieces).count(text_of(forced)[:1]) > 0, True, text_of(forced))


def limits(server, cases):
    with cases.case("max_tokens beyond the context is clamped: finish length"):
        answer = server.chat(STORY, max_tokens=32000, ignore_eos=True)
        equal(finish_of(answer), "length")
        equal(answer["usage"]["total_tokens"], CONTEXT)
    with cases.case("a prompt that fills the context is refused with the numbers"):
        answer = server.post("/v1/completions", {"prompt": [40] * CONTEXT})
        error = answer.error(400, "context_length_exceeded", "prompt")
        equal((error["n_prompt_tokens"], error["n_ctx"]), (CONTEXT, CONTEXT))
        server.complete([40] * (CONTEXT - 1), max_tokens=1)
        long = {"messages": [{"role": "user", "content": "word " * CONTEXT}]}
        error = server.post("/v1/chat/completions", long).error(400, "context_length_exceeded",
                                                                "messages")
        assert error["n_prompt_tokens"] > CONTEXT, error
    with cases.case("thinking is refused where the template knows none, switching it off is not"):
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        server.post("/v1/chat/completions", {**asked, "enable_thinking": True}).error(
            400, param="enable_thinking")
        equal(server.post("/v1/chat/completions", {**asked, "enable_thinking": False}).status, 200)
    with cases.case("a streamed refusal has its own status"):
        server.post("/v1/completions", {"prompt": [40] * CONTEXT, "stream": True}).error(
            400, "context_length_exceeded")


def models(server, cases):
    with cases.case("/v1/models and /v1/models/{id}"):
        listed = server.get("/v1/models").expect(200).json()
        equal(len(listed["data"]), 1)
        one = listed["data"][0]
        equal(server.get("/v1/models/" + one["id"]).expect(200).json()["id"], one["id"])
        equal((one["status"]["state"], one["meta"]["context"]), ("ready", CONTEXT))
        equal(one["meta"]["batch_invariant"], True)
    with cases.case("unknown names are 404 and listed, other methods 405"):
        name = server.get("/v1/models").json()["data"][0]["id"]
        error = server.get("/v1/models/nosuch").error(404, "model_not_found")
        harness.contains(error["message"], name)
        server.post("/v1/chat/completions", {"model": "nosuch", "messages": [
            {"role": "user", "content": "x"}]}).error(404, "model_not_found", "model")
        server.get("/v1/nothing").error(404, "unknown_path")
        answer = server.get("/v1/chat/completions")
        answer.error(405, "method_not_allowed")
        equal(answer.headers["Allow"], "POST")
    with cases.case("the model's name is accepted, and named in the answer"):
        name = server.get("/v1/models").json()["data"][0]["id"]
        equal(server.chat("Hello", model=name, max_tokens=2)["model"], name)
    with cases.case("/health and HEAD"):
        equal(server.get("/health").expect(200).json()["status"], "ok")
        equal(server.ask("HEAD", "/health").expect(200).body, b"")


def main():
    cases = harness.Cases()
    with harness.Folder() as folder:
        args = ["--model", harness.DEMO, "--context", str(CONTEXT)]
        with harness.Server(sys.argv[1], folder, args) as server:
            for part in (answers, streams, logprobs, stops, seeds, limits, models):
                part(server, cases)
    cases.finish()


if __name__ == "__main__":
    main()
