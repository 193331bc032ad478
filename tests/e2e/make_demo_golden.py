# SPDX-License-Identifier: Apache-2.0
"""Makes data/demo_golden.json: what llama.cpp says of the demo model. Run it after a new training.

Not part of the build or of the tests. The one idea: the file's Q8_0 weights are also written out as
F32, since llama.cpp rounds activations for Q8_0; so "f32" is a tight reference for exact arithmetic
and "q8_0" is what llama.cpp makes of the file itself. LOGITS is ../shared/tools/logits.cpp, built
against llama.cpp.

    python3 tests/e2e/make_demo_golden.py LOGITS
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "models", "demo")
sys.path.insert(0, DEMO)
import generate  # noqa: E402
import gguf_writer  # noqa: E402
import gguf_reader  # noqa: E402

GREEDY = 64
CHATS = [
    [("user", "How do I start the server?")],
    [("user", "Tell me a story about a fox.")],
    [("system", "You are a helpful assistant."), ("user", "Which devices do I have?")],
    [("user", "Hello!"), ("assistant", "Hello! Ask me about Pantheon's commands, or for a story."),
     ("user", "What does --top-k do?")],
    [("user", "What is the capital of France?")],
    [("user", "Make the port 9000, please \u2014 na\u00efve \u65e5\u672c \U0001f600")],
]
RAW = ["Once upon a time", "The quick brown fox", "Long ago, in a small village,"]
TOKENIZE = [
    "Hello, world!", " leading space", "trailing space ", "two  spaces   three",
    "tab\tand\nnewline\n\n\n end",
    "it's I'm you'll they've we'd can't 'S 'T", "127.0.0.1:8080 and 1234567890",
    "`pantheon models show FILE`",
    "--device-bytes=4GiB", "CamelCaseWords UPPER lower",
    "caf\u00e9 na\u00efve \u00fcber \u00c5ngstr\u00f6m",
    "\u65e5\u672c\u8a9e \u4e2d\u6587 \ud55c\uad6d\uc5b4",
    "\U0001f600\U0001f680 smile", "\u0661\u0662\u0663 \u00bd \u2460",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
    "a\u0301 combining", "\u00a0non-breaking\u3000wide space",
    "{\"role\":\"user\",\"content\":\"x\"}", "if (x == 3) { return y; }", "!!! ??? ... ;;; ###",
    "under_score_name", "\r\nwindows\r\nlines",
    "<|im_start|>user\nhi<|im_end|>\n", "text<|endoftext|>text", "<|im_end", "a", "\n", "   ",
    "\n\n  \n x",
]


def ask(tool, model, text, greedy):
    """The tool's JSON for one text: ids, top, greedy. One thread, f32 cache, no flash attention."""
    with tempfile.NamedTemporaryFile() as logits:
        done = subprocess.run([tool, model, logits.name, "-t", "1", "--kv", "f32", "--fa", "0",
                               "--gen", str(greedy), "--text", text],
                              check=True, capture_output=True)
    return json.loads(done.stdout.decode("utf-8", "replace"))


def widen(source, target):
    """The same model with every tensor in F32."""
    metadata, tensors = gguf_reader.read(source)
    metadata["general.file_type"] = 0
    gguf_writer.write(target, metadata, [(name, values, gguf_writer.TENSOR_F32)
                                         for name, values, _ in tensors])


def main():
    tool, model = sys.argv[1], os.path.join(DEMO, "pantheon-demo.gguf")
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        wide = os.path.join(folder, "wide.gguf")
        widen(model, wide)
        for text in [generate.chatml(chat, ask_next=True) for chat in CHATS] + RAW:
            answers = {"q8_0": ask(tool, model, text, GREEDY), "f32": ask(tool, wide, text, GREEDY)}
            cases.append({"text": text, "ids": answers["q8_0"]["ids"], **{
                kind: {"top": a["top"], "greedy": a["greedy"]} for kind, a in answers.items()}})
    vectors = [{"text": text, "ids": ask(tool, model, text, 0)["ids"]} for text in TOKENIZE]
    golden = {
        "license": "SPDX-License-Identifier: Apache-2.0",
        "about": "llama.cpp on pantheon-demo.gguf: the prompt's ids, the five best [id, logit] "
                 "after it, and 64 greedy ids (EOS does not stop them). f32: the file's weights "
                 "widened to F32, a tight reference. q8_0: the file itself, with rounded "
                 "activations. "
                 "tokenizer: ids of whole texts, control tokens parsed, no BOS.",
        "cases": cases, "tokenizer": vectors}
    with open(os.path.join(HERE, "data", "demo_golden.json"), "w", encoding="ascii") as file:
        json.dump(golden, file)
        file.write("\n")


if __name__ == "__main__":
    main()
