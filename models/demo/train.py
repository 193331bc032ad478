# SPDX-License-Identifier: Apache-2.0
"""Makes pantheon-demo.gguf from nothing: text, tokenizer, training, judgement, export.

The one idea: one command, minutes on one GPU. It generates its text (generate.py), learns the
tokenizer and the weights, asks the model what tests/e2e asks (in F32 and as the Q8_0 file holds
it), and fails when either does not pass.

    python3 models/demo/train.py --seed 1 --out models/demo/pantheon-demo.gguf --minutes 3
"""
import argparse
import json
import math
import multiprocessing
import os
import sys
import time

import numpy
import torch
import torch.nn.functional as functional

import bpe
import generate
import gguf_writer
from model import Model, Shape

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "e2e"))
import demo_check  # noqa: E402

CONTROL = [generate.STOP, generate.START, generate.END]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
            "+ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
BATCH_TOKENS = 65536
LENGTHS, LENGTH_ODDS = (512, 2048), (0.7, 0.3)  # most requests are short; the context is 2048
PEAK_RATE, WARM_SHARE = 2e-3, 0.03
SPOKEN_WEIGHT, ASK_WEIGHT = 10, 1  # learning to ask matters less than to answer
TOKENIZER_DOCUMENTS = 6000


def forbidden():
    """Requests of the tests; the training text must not hold them."""
    return [ask for ask, _ in demo_check.load_questions()] + demo_check.load_story_prompts()


def learn_tokenizer(seed, size):
    writer = generate.Writer(seed, forbidden())
    texts = []
    for _ in range(TOKENIZER_DOCUMENTS):
        kind, content = writer.document()
        texts += [content] if kind == "story" else [text for _, text in content]
        texts.append("system\nuser\nassistant\n")
    return bpe.train(texts, size, CONTROL)


def encode_document(tokenizer, kind, content):
    """(ids, weights): SPOKEN_WEIGHT where the model speaks, ASK_WEIGHT elsewhere."""
    stop, start, end = (tokenizer.control_id(name) for name in CONTROL)
    if kind == "story":
        ids = tokenizer.encode(content) + [stop]
        return ids, [SPOKEN_WEIGHT] * len(ids)
    ids, weights = [], []
    for role, text in content:
        head = [start] + tokenizer.encode(role + "\n")
        body, tail = tokenizer.encode(text), tokenizer.encode("\n")
        ids += head + body + [end] + tail
        spoken = SPOKEN_WEIGHT if role == "assistant" else ASK_WEIGHT
        weights += [ASK_WEIGHT] * len(head) + [spoken] * (len(body) + 1) + [ASK_WEIGHT] * len(tail)
    return ids + [stop], weights + [ASK_WEIGHT]


def encode_shard(job):
    """One worker's share: (ids, weights, starts of documents, requests dropped)."""
    tokenizer, seed, count = job
    writer = generate.Writer(seed, forbidden())
    ids, weights, starts = [], [], []
    for _ in range(count):
        starts.append(len(ids))
        more, how_much = encode_document(tokenizer, *writer.document())
        ids += more
        weights += how_much
    return (numpy.array(ids, numpy.int16), numpy.array(weights, numpy.uint8),
            numpy.array(starts, numpy.int64), writer.dropped)


class Text:
    """All documents in one row of ids on the device; batches begin where a document begins."""

    def __init__(self, tokenizer, seed, documents, device):
        shards = max(1, min(64, documents // 500))
        jobs = [(tokenizer, seed * 1000 + i, documents // shards) for i in range(shards)]
        with multiprocessing.Pool() as pool:
            parts = pool.map(encode_shard, jobs, chunksize=1)
        offsets = numpy.cumsum([0] + [len(part[0]) for part in parts[:-1]])
        ids = numpy.concatenate([part[0] for part in parts])
        starts = numpy.concatenate([part[2] + at for part, at in zip(parts, offsets)])
        starts = starts[starts < len(ids) - max(LENGTHS) - 1]
        self.ids = torch.from_numpy(ids).to(device)
        self.weights = torch.from_numpy(numpy.concatenate([part[1] for part in parts])).to(device)
        self.starts = torch.from_numpy(starts).to(device)
        dropped = sum(part[3] for part in parts)
        print(f"text: {documents} documents, {len(ids)} tokens, {dropped} test requests dropped")

    def batch(self, length, tokens, draw):
        """(ids, next ids, weights), each (rows, length)."""
        rows = max(1, tokens // length)
        pick = torch.randint(len(self.starts), (rows,), generator=draw, device=self.starts.device)
        at = self.starts[pick][:, None] + torch.arange(length + 1, device=self.starts.device)
        ids = self.ids[at].long()
        return ids[:, :-1], ids[:, 1:], self.weights[at[:, 1:]].float()


def rate_at(progress):
    """Learning rate: a short rise, then a cosine to zero."""
    if progress < WARM_SHARE:
        return PEAK_RATE * progress / WARM_SHARE
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (progress - WARM_SHARE) / (1 - WARM_SHARE)))


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=0.0, betas=(0.9, 0.95), foreach=True)


def train(model, text, args, device):
    """Trains until the minutes (or the steps) are used up; the learning rate follows the share."""
    draw = torch.Generator(device=device).manual_seed(args.seed)
    choice = numpy.random.RandomState(args.seed)
    optimizer = make_optimizer(model)

    def loss_of(ids, wanted, weights):
        logits = model.logits(model(ids)).float()
        each = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none")
        return (each * weights.flatten()).sum() / weights.sum()

    fast_loss = torch.compile(loss_of) if device != "cpu" and not args.eager else loss_of
    for length in LENGTHS:  # compile before the clock starts
        with torch.autocast(device, torch.bfloat16):
            fast_loss(*text.batch(length, args.batch, draw)).backward()
    begin, step, progress = time.time(), 0, 0.0
    while progress < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate_at(progress)
        length = int(choice.choice(LENGTHS, p=LENGTH_ODDS))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = fast_loss(*text.batch(length, args.batch, draw))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 200 == 0 or args.steps:
            print(f"step {step} loss {loss.item():.4f} {time.time() - begin:.0f} s", flush=True)
        progress = step / args.steps if args.steps else (time.time() - begin) / (args.minutes * 60)
    seconds = time.time() - begin
    print(f"trained {step} steps, {step * args.batch / 1e6:.0f} M tokens, {seconds:.0f} s")


@torch.no_grad()
def answer_all(model, tokenizer, requests, limit=400):
    """Greedy answers in F32: [(text, ended)]. Whole rows each step: slow, simple, and right."""
    end = {tokenizer.control_id(generate.END), tokenizer.control_id(generate.STOP)}
    rows = [prompt_ids(tokenizer, [("user", request)]) for request in requests]
    begins, ended = [len(row) for row in rows], [False] * len(rows)
    device = model.token_embd.weight.device
    for _ in range(limit):
        live = [i for i, done in enumerate(ended) if not done]
        if not live:
            break
        width = max(len(rows[i]) for i in live)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in live], device=device)
        last = torch.tensor([len(rows[i]) - 1 for i in live], device=device)
        x = model(ids)[torch.arange(len(live), device=device), last]
        for i, token in zip(live, model.logits(x).argmax(-1).tolist()):
            rows[i].append(token)
            ended[i] = token in end
    return [(tokenizer.decode(row[begin:]), done) for row, begin, done in zip(rows, begins, ended)]


def prompt_ids(tokenizer, turns):
    start, end = tokenizer.control_id(generate.START), tokenizer.control_id(generate.END)
    ids = []
    for role, text in turns:
        ids += [start] + tokenizer.encode(role + "\n" + text) + [end] + tokenizer.encode("\n")
    return ids + [start] + tokenizer.encode("assistant\n")


def metadata(shape, tokenizer):
    names = tokenizer.token_names()
    end = tokenizer.control_id(generate.END)
    return {
        "general.architecture": "llama", "general.type": "model", "general.name": "pantheon-demo",
        "general.license": "Apache-2.0", "general.file_type": 7, "general.quantization_version": 2,
        "general.description": "Explains Pantheon's commands and tells short stories.",
        "llama.context_length": shape.context, "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers, "llama.feed_forward_length": shape.hidden,
        "llama.attention.head_count": shape.heads, "llama.attention.head_count_kv": shape.kv_heads,
        "llama.rope.dimension_count": shape.head_dim, "llama.rope.freq_base": shape.rope_base,
        "llama.attention.layer_norm_rms_epsilon": shape.eps, "llama.vocab_size": shape.vocab,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(names) - len(CONTROL)),
        "tokenizer.ggml.merges": tokenizer.merge_names(),
        "tokenizer.ggml.bos_token_id": tokenizer.control_id(generate.STOP),
        "tokenizer.ggml.eos_token_id": end, "tokenizer.ggml.eot_token_id": end,
        "tokenizer.ggml.padding_token_id": tokenizer.control_id(generate.STOP),
        "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def export(model, tokenizer, path, kind=gguf_writer.TENSOR_Q8_0):
    tensors = []
    for name, weight in model.named_parameters():
        values = weight.detach().float().cpu().numpy()
        tensors.append((name, values, kind if values.ndim == 2 else gguf_writer.TENSOR_F32))
    gguf_writer.write(path, metadata(model.shape, tokenizer), tensors)
    parameters = sum(weight.numel() for weight in model.parameters())
    print(f"{path}: {os.path.getsize(path)} bytes, {parameters} parameters")


def judge(model, tokenizer, name):
    """Prints the scores and every failure; True when the model passes."""
    right, wrong, good, bad = demo_check.judge(lambda asks: answer_all(model, tokenizer, asks))
    for ask, answer, why in wrong + bad:
        print(f"  {name} FAILS: {ask!r}\n    -> {answer!r}\n    want {why}")
    print(f"{name}: {right} questions right, {good} stories good")
    return demo_check.passes(right, good)


def through_file(model):
    """The model as a reader of the Q8_0 file sees it."""
    copy = Model(model.shape)
    for weight, source in zip(copy.parameters(), model.parameters()):
        values = source.detach().float().cpu().numpy()
        values = gguf_writer.through_q8_0(values) if values.ndim == 2 else values
        weight.data = torch.from_numpy(values)
    return copy.to(model.token_embd.weight.device)


def parse_arguments():
    parser = argparse.ArgumentParser(description="trains the demo model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=os.path.join(HERE, "pantheon-demo.gguf"))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=0, help="instead of minutes")
    parser.add_argument("--documents", type=int, default=400000)
    parser.add_argument("--batch", type=int, default=BATCH_TOKENS, help="tokens of a step")
    parser.add_argument("--eager", action="store_true", help="do not compile the graph")
    parser.add_argument("--answers", help="write the Q8_0 answers to this JSON file")
    return parser.parse_args()


def main():
    args = parse_arguments()
    gpu = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = gpu.type if gpu else "cpu"
    torch.manual_seed(args.seed)
    begin = time.time()
    shape = Shape()
    tokenizer = learn_tokenizer(args.seed, shape.vocab)
    print(f"tokenizer: {len(tokenizer)} tokens, {time.time() - begin:.0f} s")
    text = Text(tokenizer, args.seed, args.documents, device)
    print(f"text ready after {time.time() - begin:.0f} s", flush=True)
    model = Model(shape).to(device)
    train(model, text, args, device)
    export(model, tokenizer, args.out)
    read_back = through_file(model)
    passed = [judge(model, tokenizer, "F32"), judge(read_back, tokenizer, "Q8_0")]
    if args.answers:
        answers = {ask: answer for ask, answer in zip(
            forbidden(), answer_all(read_back, tokenizer, forbidden()))}
        with open(args.answers, "w", encoding="ascii") as file:
            json.dump(answers, file, indent=1)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
