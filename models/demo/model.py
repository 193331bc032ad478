# SPDX-License-Identifier: Apache-2.0
"""The demo model in PyTorch: the llama graph, as GGUF's architecture `llama` wants it.

Knows nothing of text. The one idea: shapes, names and RoPE pairs are those of the file (pairs are
neighbours: x[2i], x[2i+1]), so that export is a copy and nothing is permuted.
"""
import dataclasses

import torch
import torch.nn.functional as functional
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    """Every size is a multiple of 64, rows of 256, so that each GGUF block type fits."""
    vocab: int = 2048
    width: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 512
    context: int = 2048
    rope_base: float = 10000.0
    eps: float = 1e-5


class Norm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.eps = shape.eps

    def forward(self, x):
        wide = x.float()
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        self.attn_q = nn.Linear(shape.width, q_width, bias=False)
        self.attn_k = nn.Linear(shape.width, kv_width, bias=False)
        self.attn_v = nn.Linear(shape.width, kv_width, bias=False)
        self.attn_output = nn.Linear(q_width, shape.width, bias=False)
        self.ffn_gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.ffn_up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.ffn_down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x, turn):
        """x: (rows, T, width); turn: (cos, sin), each (T, head_dim / 2)."""
        x = x + self.attn_output(self._attend(self.attn_norm(x), turn))
        h = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def _attend(self, h, turn):
        rows, length, _ = h.shape
        split = lambda t, n: t.view(rows, length, n, self.shape.head_dim).transpose(1, 2)
        q = rotate(split(self.attn_q(h), self.shape.heads), turn)
        k = rotate(split(self.attn_k(h), self.shape.kv_heads), turn)
        v = split(self.attn_v(h), self.shape.kv_heads)
        shared = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(rows, length, -1)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape)
        angles = torch.arange(shape.context)[:, None] * shape.rope_base ** (
            -torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                into_residual = name.endswith(("attn_output.weight", "ffn_down.weight"))
                shrink = (2 * shape.layers) ** 0.5 if into_residual else 1
                nn.init.normal_(weight, std=0.02 / shrink)

    def forward(self, ids):
        """ids: (rows, T) -> (rows, T, width), before the output matrix."""
        turn = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, turn)
        return self.output_norm(x)

    def logits(self, x):
        """The output matrix is the embedding (tied)."""
        return functional.linear(x, self.token_embd.weight)


def rotate(x, turn):
    """RoPE on neighbouring pairs. x: (rows, heads, T, head_dim)."""
    cos, sin = turn
    pairs = x.float().unflatten(-1, (-1, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)
