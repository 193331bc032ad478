#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pantheon run` at a terminal: question, answer, Ctrl-C stops the answer and not the program."""
import os
import pty
import select
import signal
import subprocess
import sys
import time

import harness
from harness import contains, equal


class Terminal:
    """The program on a pseudo-terminal; what it prints is read as it comes."""

    def __init__(self, exe, folder, args):
        self.seen = ""
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([exe, *args], stdin=slave, stdout=slave, stderr=slave,
                                        env=folder.environment(), start_new_session=True,
                                        preexec_fn=lambda: take_terminal(slave))
        os.close(slave)

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self.master, 4096)
        except OSError:
            return False
        self.seen += part.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(part)

    def until(self, text, seconds=60, after=0):
        """Everything up to and with `text`, beginning at `after`."""
        end = time.monotonic() + seconds * harness.SLOW
        while text not in self.seen[after:]:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen[-1500:]!r}"
            self.read(min(left, 0.2))
            assert self.process.poll() is None or text in self.seen[after:], self.seen[-1500:]
        return self.seen[after:self.seen.index(text, after) + len(text)]

    def type(self, text):
        os.write(self.master, text.encode())

    def ask(self, line):
        """Types a question; the answer, up to the next prompt."""
        start = len(self.seen)
        self.type(line + "\n")
        self.until(line + "\n", after=start)
        start = self.seen.index(line + "\n", start) + len(line) + 1
        return self.until("\n> ", after=start).removesuffix("\n> ")

    def end(self):
        end = time.monotonic() + 30 * harness.SLOW
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        return self.process.wait(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


def take_terminal(slave):
    import fcntl
    import termios
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def chats(exe, cases):
    with harness.Folder() as folder, Terminal(exe, folder, [
            "run", harness.DEMO, "--temp", "0", "--context", "2048"]) as t:
        with cases.case("it says what to do, and asks"):
            contains(t.until("> "), "Ctrl-D")
        with cases.case("a question is answered, then the next one"):
            contains(t.ask("Which command lists the dies?"), "devices")
            assert len(t.ask("Tell me a story.").split()) > 10
        with cases.case("/new starts over: the same question, the same answer"):
            t.type("/new\n")
            start = len(t.seen)
            t.until("> ", after=start)
            first = t.ask("Which command lists the dies?")
            t.type("/new\n")
            start = len(t.seen)
            t.until("> ", after=start)
            equal(t.ask("Which command lists the dies?"), first)
        with cases.case("Ctrl-D ends the chat with code 0"):
            t.type("\x04")
            equal(t.end(), 0)


def interrupts(exe, cases):
    with harness.Folder() as folder, Terminal(exe, folder, [
            "run", harness.DEMO, "--ignore-eos", "--context", "2048"]) as t:
        t.until("> ")
        with cases.case("Ctrl-C stops the answer and not the program"):
            start = len(t.seen)
            t.type("Tell me a story.\n")
            t.until("story.\n", after=start)
            while len(t.seen) < start + 80:  # the answer has begun
                t.read(0.1)
            t.type("\x03")
            t.until("\n> ", after=start + 80)
            equal(t.process.poll(), None)
        with cases.case("and another question is answered after it"):
            start = len(t.seen)
            t.type("Tell me a story.\n")
            while len(t.seen) < start + 80:
                t.read(0.1)
            t.type("\x03")
            t.until("\n> ", after=start + 80)
        with cases.case("Ctrl-C at the prompt ends the program with code 130"):
            t.type("\x03")
            equal(t.end(), 130)


def pipes(exe, cases):
    with harness.Folder() as folder:
        args = ["run", harness.DEMO, "--temp", "0"]
        with cases.case("-p answers once; only the answer is on stdout"):
            asked = [*args, "-p", "Which command lists the dies?"]
            done = harness.run(exe, asked, folder).expect(0)
            contains(done.out, "devices")
            equal((done.out.count("\n"), ">" in done.out), (1, False), done.out)
        with cases.case("questions from a pipe, a line each, without prompts"):
            done = harness.run(exe, args, folder, stdin=b"Which command lists the dies?\n"
                               b"Which command lists the dies?\n").expect(0)
            assert done.out.count("devices") >= 1 and "> " not in done.out, done.out
        with cases.case("--seed repeats, -n limits"):
            hot = [*args[:2], "--temp", "1", "--seed", "5", "-n", "12", "-p", "Tell me a story."]
            first = harness.run(exe, hot, folder).expect(0).out
            equal(harness.run(exe, hot, folder).expect(0).out, first)
            assert 3 <= len(first.split()) <= 12, first


def main():
    cases = harness.Cases()
    for part in (pipes, chats, interrupts):
        part(sys.argv[1], cases)
    cases.finish()


if __name__ == "__main__":
    main()
