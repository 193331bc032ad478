# SPDX-License-Identifier: Apache-2.0
"""What every e2e test stands on: the program as a child, its HTTP API, and counted cases.

Owns processes, ports, temporary folders and time limits. Knows no behaviour: that is what the tests
are for. Each test is `test.py PANTHEON [options]`; it prints "CASES: N passed, M failed", and
"SKIP: reason" for what this host cannot show. Limits are multiplied in sanitizer builds.
"""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.environ.get("PN_SOURCE_ROOT") or os.path.abspath(
    os.path.join(os.path.dirname(__file__), "..", ".."))
DEMO = os.path.join(ROOT, "models", "demo", "pantheon-demo.gguf")
SANITIZER = os.environ.get("PN_SANITIZE", "none")
SANITIZED = SANITIZER not in ("", "none")
SLOW = 8 if SANITIZED else 1
CLEAN_EXIT = 0
USAGE, PLUGIN, MODEL, MEMORY, PORT = 2, 3, 4, 5, 6
# What a sanitizer says when it found something: never mistaken for an orderly refusal.
SANITIZER_EXIT = 99


def shared():
    """The folder of small models and golden files, or None."""
    for place in (os.environ.get("PN_SHARED"), os.path.join(ROOT, "..", "shared")):
        if place and os.path.isdir(os.path.join(place, "models")):
            return os.path.abspath(place)
    return None


class Cases:
    """Counts cases; `with cases.case(name):` turns an exception into one failure."""

    def __init__(self):
        self.passed = self.failed = 0

    @contextlib.contextmanager
    def case(self, name):
        start = time.monotonic()
        try:
            yield
        except Exception:  # a test reports any failure and goes on
            self.failed += 1
            print(f"FAIL {name}\n{traceback.format_exc(limit=-3)}", flush=True)
        else:
            self.passed += 1
            print(f"ok   {name} ({time.monotonic() - start:.1f} s)", flush=True)

    def skip(self, reason):
        print(f"SKIP: {reason}", flush=True)

    def finish(self):
        print(f"CASES: {self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed else 0)


def equal(found, wanted, what=""):
    assert found == wanted, f"{what}\n  wanted {wanted!r}\n  found  {found!r}"


def contains(text, part):
    assert part in text, f"{part!r} is not in {text[-3000:]!r}"


class Folder:
    """A temporary folder that only we may write to, and an environment without the user's own."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="pantheon-e2e-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name, content=None):
        path = os.path.join(self.path, name)
        if content is not None:
            with open(path, "wb") as out:
                out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("PANTHEON_") and k != "PN_DIE_RESERVE_BYTES"}
        env["HOME"] = env["XDG_CONFIG_HOME"] = env["XDG_CACHE_HOME"] = self.path
        for name, ours in (("ASAN_OPTIONS", "exitcode=99"), ("TSAN_OPTIONS", "exitcode=99")):
            env[name] = ":".join(filter(None, [env.get(name), ours]))
        env.update(more)
        return env


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def expect(self, code):
        assert self.code == code, (f"exit code {self.code}, wanted {code}\n--- stdout\n"
                                   f"{self.out[-1500:]!r}\n--- stderr\n{self.err[-3000:]}")
        return self


def run(exe, args, folder, seconds=60, env=None, stdin=None):
    """One command to its end; output as text with surrogates for what is not UTF-8."""
    command = [exe, *args] if isinstance(exe, str) else [*exe, *args]
    done = subprocess.run(command, env=env or folder.environment(), timeout=seconds * SLOW,
                          input=stdin, capture_output=True, check=False)
    return Done(done.returncode, done.stdout.decode("utf-8", "surrogateescape"),
                done.stderr.decode("utf-8", "replace"))


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def expect(self, status):
        assert self.status == status, f"status {self.status}, wanted {status}: {self.body[:2000]}"
        return self

    def error(self, status, code=None, param=None):
        """The error body, checked for its form."""
        error = self.expect(status).json()["error"]
        assert error["message"] and error["type"], error
        if code is not None:
            equal(error["code"], code, str(error))
        if param is not None:
            equal(error["param"], param, str(error))
        return error


class Server:
    """`pantheon ... serve --port 0 ...` with its log lines; a context manager."""

    def __init__(self, exe, folder, args=(), before=(), env=None, wait=True):
        self.exe, self.folder = exe, folder
        self.lines, self.changed = [], threading.Condition()
        command = [exe, *before, "serve", "--port", "0", *args]
        self.process = subprocess.Popen(command, env=env or folder.environment(),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.url = self.line(r"listening on (http://\S+)", 60).group(1)
            self.host, self.port = self.url.removeprefix("http://").rsplit(":", 1)
            if wait:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def _read(self):
        for raw in self.process.stderr:
            with self.changed:
                self.lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)
            self.changed.notify_all()

    def log(self):
        return "\n".join(line for line in list(self.lines) if line is not None)

    def line(self, pattern, seconds):
        """The first log line that matches, waited for."""
        end = time.monotonic() + seconds * SLOW
        seen = 0
        with self.changed:
            while True:
                for text in self.lines[seen:]:
                    found = text is not None and re.search(pattern, text)
                    if found:
                        return found
                seen = len(self.lines)
                left = end - time.monotonic()
                if left <= 0 or (self.lines and self.lines[-1] is None):
                    raise AssertionError(f"no line like {pattern!r} in:\n{self.log()[-3000:]}")
                self.changed.wait(left)

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds * SLOW
        while True:
            answer = self.get("/ready")
            if answer.status == 200:
                return
            failed = b'"failed"' in answer.body or self.process.poll() is not None
            if failed or time.monotonic() > end:
                raise AssertionError(f"not ready: {answer.body!r}\n{self.log()[-3000:]}")
            time.sleep(0.02)

    def connect(self, seconds=120):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=seconds * SLOW)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, raw, headers or {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, body):
        return self.ask("POST", path, body)

    def chat(self, text, **more):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
        return self.post("/v1/chat/completions", body).expect(200).json()

    def complete(self, prompt, **more):
        body = {"prompt": prompt, "temperature": 0, **more}
        return self.post("/v1/completions", body).expect(200).json()

    def stream(self, path, body):
        """Events of a stream as they come: parsed JSON, and "[DONE]" as text."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}).encode(),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"status {response.status}: {response.read()[:1000]!r}")
            yield from events(response)
        finally:
            connection.close()

    def status(self, key):
        """A number of /proc/PID/status, in bytes."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
        raise AssertionError(f"no {key} in /proc/PID/status")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=45):
        code = self.process.wait(seconds * SLOW)
        self.reader.join(5)
        return code

    def stop(self):
        """SIGTERM, and what an orderly end looks like."""
        self.signal(signal.SIGTERM)
        code = self.wait()
        assert code == CLEAN_EXIT, f"exit code {code}\n{self.log()[-4000:]}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()


def events(response):
    """Server-sent events of an open response."""
    for raw in response:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line:
            continue
        assert line.startswith("data: "), line
        data = line.removeprefix("data: ")
        yield data if data == "[DONE]" else json.loads(data)


def joined(chunks):
    """The text of a stream's chunks, chat or plain."""
    text = ""
    for chunk in chunks:
        if chunk == "[DONE]" or "choices" not in chunk:
            continue
        for choice in chunk["choices"]:
            text += choice.get("text", "") or choice.get("delta", {}).get("content") or ""
    return text


def text_of(answer):
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def finish_of(answer):
    return answer["choices"][0]["finish_reason"]


def profile(folder, name, text):
    return folder.file(name, "version: 1\n" + text)


def build_root(exe):
    return os.path.dirname(os.path.abspath(exe))


def make_gguf(exe, folder, preset, kind, *options):
    """A model with random weights, written by the tree's own tool."""
    path = folder.file(f"{preset}-{kind}{'-'.join(options)}.gguf".replace("/", "_"))
    tool = os.path.join(build_root(exe), "tests", "support", "make_gguf")
    subprocess.run([tool, preset, kind, path, *options], check=True, stdout=subprocess.DEVNULL)
    return path
