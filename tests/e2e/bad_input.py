#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Broken requests, clients, files and profiles: each a clear error, and the server still serves."""
import json
import os
import socket
import sys
import time

import gguf
import harness
from harness import contains, equal

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def bodies(server, cases):
    def refused(name, path, body, param=None, code="invalid_request"):
        with cases.case(f"400: {name}"):
            server.post(path, body).error(400, code, param)

    refused("not JSON", CHAT, b"{\"messages\": [")
    refused("empty body", CHAT, b"")
    refused("a number alone", CHAT, b"17")
    refused("an array", CHAT, b"[]")
    refused("text after the JSON", CHAT, b"{} {}")
    refused("bytes that are not UTF-8", CHAT,
            b'{"messages":[{"role":"user","content":"\xff\xfe"}]}')
    refused("half a surrogate pair", CHAT,
            b'{"messages":[{"role":"user","content":"\\ud800"}]}')
    refused("no messages", CHAT, {}, "messages")
    refused("empty messages", CHAT, {"messages": []}, "messages")
    refused("a message without role", CHAT, {"messages": [{"content": "x"}]}, "messages[0]")
    refused("a message that is text", CHAT, {"messages": ["x"]}, "messages[0]")
    refused("an image", CHAT, {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:"}}]}]}, "messages[0]")
    refused("an unknown parameter", CHAT, {"messages": HELLO, "temprature": 1}, "temprature")
    for name, value in (("temperature", -1), ("temperature", "hot"), ("top_p", 1.5), ("top_k", -3),
                        ("max_tokens", 0), ("max_tokens", 1.5), ("n", 2), ("seed", "x"),
                        ("stop", [""]), ("stop", 7), ("logit_bias", {"x": 1}), ("stream", "yes"),
                        ("logit_bias", {"1": 1000}), ("top_logprobs", 3), ("tools", [{}]),
                        ("response_format", {"type": "json_object"}), ("presence_penalty", 3),
                        ("min_p", 2), ("repeat_penalty", 0), ("user", 5), ("store", True)):
        refused(f"{name} {value!r}", CHAT, {"messages": HELLO, name: value}, name)
    refused("no prompt", TEXT, {}, "prompt")
    refused("an empty prompt", TEXT, {"prompt": []}, "prompt")
    refused("a token id beyond the vocabulary", TEXT, {"prompt": [1 << 30]}, "prompt")
    refused("a negative token id", TEXT, {"prompt": [-1]}, "prompt")
    refused("two prompts", TEXT, {"prompt": ["a", "b"]}, "prompt")
    refused("a bias beyond the vocabulary", TEXT,
            {"prompt": "a", "logit_bias": {str(1 << 30): 1}}, "logit_bias")
    with cases.case("null counts as absent, unknown headers are nothing"):
        body = {"messages": HELLO, "temperature": None, "max_tokens": 1, "tools": None, "x": None}
        server.ask("POST", CHAT, body, {"x-stainless-lang": "js", "Accept-Encoding": "gzip"}
                   ).expect(200)


def deep(server, cases):
    for name, body in (
            ("an array 1,000,000 deep", b"[" * 1000000),
            ("closed, 1,000,000 deep", b"[" * 1000000 + b"]" * 1000000),
            ("deep in template variables", b'{"messages":[{"role":"user","content":"x"}],'
             b'"chat_template_kwargs":{"a":' + b"[" * 500000 + b"]" * 500000 + b"}}"),
            ("deep in a message", b'{"messages":[{"role":"user","content":"x","a":' +
             b'{"a":' * 500000 + b"1" + b"}" * 500000 + b"}]}"),
            ("deep in a prompt", b'{"prompt":' + b"[" * 500000 + b"]" * 500000 + b"}")):
        with cases.case(f"deep JSON: {name}"):
            path = TEXT if name.endswith("prompt") else CHAT
            server.post(path, body).error(400)
            server.get("/health").expect(200)


def sockets(server, cases):
    with cases.case("a body above the limit is 413, headers above theirs 431"):
        connection = server.connect()
        connection.putrequest("POST", CHAT)
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        equal(connection.getresponse().status, 413)
        connection.close()
        try:
            answer = server.ask("GET", "/health", None, {"X-Long": "x" * 100000})
            equal(answer.status, 431)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it answered and closed before all was sent
        server.get("/health").expect(200)
    with cases.case("what is not HTTP is refused or closed"):
        for raw in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0" * 4096,
                    b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with socket.create_connection((server.host, int(server.port)), 20) as s:
                try:
                    s.sendall(raw)
                    s.shutdown(socket.SHUT_WR)
                    found = s.recv(100)
                except OSError:
                    continue  # closed before all was sent
                assert not found or found.startswith(b"HTTP/1.1 400"), (raw[:40], found)
        server.get("/health").expect(200)
    with cases.case("a client that leaves in the middle of its request"):
        for _ in range(20):
            with socket.create_connection((server.host, int(server.port)), 20) as s:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        server.get("/health").expect(200)


def running(server):
    return server.get("/v1/models").json()["data"][0]["meta"]["running"]


def leaves(server, stream):
    connection = server.connect()
    body = {"prompt": "Once", "max_tokens": 100000, "ignore_eos": True, "stream": stream}
    connection.request("POST", TEXT, json.dumps(body).encode())
    if stream:
        connection.getresponse().readline()
    end = time.monotonic() + 10 * harness.SLOW
    while running(server) == 0 and time.monotonic() < end:
        time.sleep(0.005)
    connection.sock.close() if connection.sock else None
    connection.close()


def gone(server, cases):
    for stream in (True, False):
        with cases.case(f"client gone, stream {stream}: the slot is free again"):
            for _ in range(6):  # more than there are slots
                leaves(server, stream)
            end = time.monotonic() + 5 * harness.SLOW
            while running(server) and time.monotonic() < end:
                time.sleep(0.02)
            equal(running(server), 0, "sequences still running")
            contains(harness.text_of(server.chat("Which command lists the dies?")), "devices")
    with cases.case("a client that reads nothing does not hold others up"):
        connection = server.connect()
        body = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        connection.request("POST", TEXT, json.dumps(body).encode())
        start = time.monotonic()
        server.chat("Hello", max_tokens=4)
        assert time.monotonic() - start < 20 * harness.SLOW
        connection.close()


def ports(exe, server, cases):
    with cases.case("the port is taken: exit code 6, the port is named"):
        with harness.Folder() as folder:
            done = harness.run(exe, ["serve", "--port", server.port, "--model", harness.DEMO],
                               folder).expect(harness.PORT)
            contains(done.err, server.port)
    with cases.case("an address that is none"):
        with harness.Folder() as folder:
            done = harness.run(exe, ["serve", "--host", "no such", "--model", harness.DEMO], folder)
            assert done.code not in (0, harness.SANITIZER_EXIT) and done.code > 0, done.code
            contains(done.err, "no such")


def refused_file(exe, folder, path, *words):
    done = harness.run(exe, ["run", path, "-p", "x"], folder)
    assert done.code in (harness.MODEL, harness.PLUGIN), f"code {done.code}: {done.err[-2000:]}"
    for word in words or [os.path.basename(path)]:
        contains(done.err, word)
    equal(done.out, "")


def files(exe, cases):
    with open(harness.DEMO, "rb") as file:
        whole = file.read()
    header = gguf.File(harness.DEMO).header_end
    with harness.Folder() as folder:
        with cases.case("model files: missing, empty, text, a folder, bad magic, bad version"):
            refused_file(exe, folder, folder.file("missing.gguf"))
            refused_file(exe, folder, folder.file("empty.gguf", b""))
            refused_file(exe, folder, folder.file("text.gguf", "hello " * 50))
            refused_file(exe, folder, folder.path)
            refused_file(exe, folder, folder.file("magic.gguf", b"GGUX" + whole[4:]))
            refused_file(exe, folder, folder.file("v9.gguf", whole[:4] + b"\x09\0\0\0" + whole[8:]))
        with cases.case("model files: cut off anywhere"):
            cuts = [3, 8, 20, 24, 60, header // 3, header // 2, header - 1, header + 1,
                    len(whole) // 2, len(whole) - 1]
            for cut in cuts[::3] if harness.SANITIZED else cuts:
                refused_file(exe, folder, folder.file(f"cut{cut}.gguf", whole[:cut]))
        with cases.case("model files: counts that cannot be"):
            for at, name in ((8, "tensors"), (16, "keys")):
                for value in (b"\xff" * 8, b"\0\0\0\0\1\0\0\0"):
                    raw = whole[:at] + value + whole[at + 8:]
                    refused_file(exe, folder, folder.file(f"many-{name}.gguf", raw))
    edited(exe, cases)


def edited(exe, cases):
    """Files that are whole and say something that this version cannot do."""
    def change(name, edit, *words):
        with harness.Folder() as folder, cases.case(f"model file: {name}"):
            model = gguf.File(harness.DEMO)
            edit(model)
            refused_file(exe, folder, model.write(folder.file("edited.gguf")), *words)

    change("unknown architecture", lambda m: m.set_text("general.architecture", "zebra"), "zebra")
    change("unknown tensor type", lambda m: setattr(m.tensors[0], "kind", 199), "199")
    change("a type that is not supported", lambda m: setattr(m.tensors[0], "kind", 10), "Q2_K")
    change("unknown tokenizer", lambda m: m.set_text("tokenizer.ggml.model", "zebra"), "zebra")
    change("unknown pre-tokenizer", lambda m: m.set_text("tokenizer.ggml.pre", "zebra"), "zebra")
    change("a key is missing", lambda m: m.keys.pop("llama.block_count"), "llama.block_count")
    change("a tensor is missing", lambda m: m.tensors.pop(), "")
    change("an offset beyond the file",
           lambda m: setattr(m.tensors[-1], "offset", 1 << 40), m_last_name())
    change("heads that do not divide",
           lambda m: m.keys.update({"llama.attention.head_count": (4, 7)}), "")
    change("heads without end",
           lambda m: m.keys.update({"llama.attention.head_count": (4, 0xffffffff)}), "")
    change("layers without end", lambda m: m.keys.update({"llama.block_count": (4, 1 << 31)}), "")
    change("a template that is no template",
           lambda m: m.set_text("tokenizer.chat_template", "{% for %}{{"), "template")


def m_last_name():
    return gguf.File(harness.DEMO).tensors[-1].name


HOSTILE = {
    "a loop without end": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}"
                          "{% endfor %}",
    "text without end": "{% set ns = namespace(s='x') %}{% for a in range(60) %}"
                        "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "recursion without end": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "a huge repeat": "{{ 'x' * 99999999999 }}",
    "the way out of a sandbox": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "its own refusal": "{{ raise_exception('roles must alternate') }}",
}


def templates(exe, cases):
    for name, source in HOSTILE.items():
        with cases.case(f"hostile template: {name}"):
            with harness.Folder() as folder:
                model = gguf.File(harness.DEMO)
                # Plain while it is probed at load, hostile when the word comes.
                model.set_text("tokenizer.chat_template",
                               "{% if messages[0]['content'] == 'now' %}" + source +
                               "{% else %}{{ messages[0]['content'] }}{% endif %}")
                path = model.write(folder.file("template.gguf"))
                with harness.Server(exe, folder, ["--model", path, "--context", "256"]) as server:
                    server.chat("hello", max_tokens=1)
                    start = time.monotonic()
                    error = server.post(CHAT, {"messages": [{"role": "user", "content": "now"}]}
                                        ).error(400, "invalid_messages")
                    assert time.monotonic() - start < 10 * harness.SLOW, "it took its time"
                    if "refusal" in name:
                        contains(error["message"], "roles must alternate")
                    server.chat("hello", max_tokens=1)


def broken_template(exe, cases):
    with harness.Folder() as folder, cases.case("a template that is none: no chat, the rest works"):
        model = gguf.File(harness.DEMO)
        model.set_text("tokenizer.chat_template", "{% for %}{{")
        path = model.write(folder.file("broken.gguf"))
        with harness.Server(exe, folder, ["--model", path, "--context", "256"]) as server:
            error = server.post(CHAT, {"messages": HELLO}).error(400)
            contains(error["message"], "template")
            server.complete("Once", max_tokens=2)


def profiles(exe, cases):
    text = ("plugins:\n  cpu: { optoins: { threads: 2 } }\nmodels:\n  - name: a\n"
            "    fiel: x.gguf\nserver: { port: 99999 }\n")
    with harness.Folder() as folder:
        path = harness.profile(folder, "p.yaml", text)
        for command in (["profile", "check"], ["serve"], ["profile", "show"]):
            with cases.case(f"profile mistakes by line, with what was meant: {' '.join(command)}"):
                done = harness.run(exe, ["--profile", path, *command], folder)
                done.expect(harness.USAGE)
                for word in (f"{path}:3:", "optoins", "options", f"{path}:6:", "fiel", "file",
                             f"{path}:7:", "99999"):
                    contains(done.err, word)
        with cases.case("not YAML, another version, a missing file"):
            for name, content in (("a.yaml", "version: 1\nmodels: [\n"), ("b.yaml", "version: 9\n"),
                                  ("c.yaml", "- 1\n")):
                bad = folder.file(name, content)
                done = harness.run(exe, ["profile", "check", bad], folder).expect(harness.USAGE)
                contains(done.err, bad + ":")
            missing = folder.file("missing.yaml")
            done = harness.run(exe, ["--profile", missing, "serve"], folder)
            assert done.code in (harness.USAGE, harness.PLUGIN), done.code
            contains(done.err, missing)
        with cases.case("a plugin option that nobody knows is refused by name"):
            odd = harness.profile(folder, "o.yaml", "plugins: { cpu: { options: { zebra: 1 } } }\n")
            done = harness.run(exe, ["--profile", odd, "devices"], folder)
            assert done.code not in (0, harness.SANITIZER_EXIT) and done.code > 0, done.code
            contains(done.err, "zebra")
        with cases.case("a model pinned to a plugin that is not in use"):
            pinned = harness.profile(folder, "q.yaml", "models:\n  - { name: m, file: "
                                     f"{harness.DEMO}, dies: ['other:0'] }}\n")
            done = harness.run(exe, ["--profile", pinned, "--backend-plugin", "cpu", "serve",
                                     "--port", "0"], folder)
            assert done.code in (harness.USAGE, harness.PLUGIN), done.code
            contains(done.err, "other:0")


def memory(exe, cases):
    with cases.case("what does not fit is refused with numbers, exit code 5"):
        with harness.Folder() as folder:
            small = harness.profile(folder, "s.yaml",
                                    "dies: [{ match: '*', bytes: 1MiB, reserve: 0 }]\n")
            done = harness.run(exe, ["--profile", small, "run", harness.DEMO, "-p", "x"], folder)
            done.expect(harness.MEMORY)
            contains(done.err, "MiB")
            equal(done.out, "")


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    with harness.Folder() as folder:
        args = ["--model", harness.DEMO, "--context", "2048"]
        with harness.Server(exe, folder, args) as server:
            for part in (bodies, deep, sockets, gone):
                part(server, cases)
            ports(exe, server, cases)
    for part in (files, templates, broken_template, profiles, memory):
        part(exe, cases)
    cases.finish()


if __name__ == "__main__":
    main()
