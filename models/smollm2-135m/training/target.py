"""The target model in plain PyTorch: batched greedy replies, with hidden states on the way.

On a CPU this is several times faster than a general server and yields, in the same forward
pass, the hidden states a head is trained on. Layer ids follow vLLM: id i is the residual stream
after i layers (0 = the embeddings).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

CAPTURED_LAYERS = (2, 15, 27, 30)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square normalisation over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rope_table(length: int, head_dim: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each of shape (length, head_dim), in the half-split layout of Llama."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary position embeddings to the last dimension of x."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


@dataclass
class KVCache:
    """Keys and values, shape (layers, rows, kv_heads, slots, head_dim) each."""

    keys: torch.Tensor
    values: torch.Tensor

    def select(self, rows: torch.Tensor) -> KVCache:
        """Keep only some rows."""
        return KVCache(
            torch.stack([k[rows] for k in self.keys]), torch.stack([v[rows] for v in self.values])
        )


class Target:
    """A Llama model with tied embeddings, loaded from a Hugging Face directory in float32."""

    def __init__(self, path: Path, max_len: int = 2048) -> None:
        config = json.loads((path / "config.json").read_text())
        self.layers_n: int = config["num_hidden_layers"]
        self.hidden: int = config["hidden_size"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config["num_key_value_heads"]
        self.head_dim: int = config.get("head_dim") or self.hidden // self.heads
        self.eps: float = config["rms_norm_eps"]
        self.eos: int = config["eos_token_id"]
        rope = config.get("rope_parameters") or config
        self.cos, self.sin = rope_table(max_len, self.head_dim, rope["rope_theta"])
        w = {k: v.float() for k, v in load_file(path / "model.safetensors").items()}
        self.embed = w["model.embed_tokens.weight"]
        self.lm_head = w.get("lm_head.weight", self.embed)
        self.norm = w["model.norm.weight"]
        self.layers = []
        for i in range(self.layers_n):
            p = f"model.layers.{i}."
            qkv = [w[p + f"self_attn.{n}_proj.weight"] for n in "qkv"]
            gate_up = [w[p + "mlp.gate_proj.weight"], w[p + "mlp.up_proj.weight"]]
            self.layers.append(
                {
                    "in": w[p + "input_layernorm.weight"],
                    "qkv": torch.cat(qkv),
                    "o": w[p + "self_attn.o_proj.weight"],
                    "post": w[p + "post_attention_layernorm.weight"],
                    "gate_up": torch.cat(gate_up),
                    "down": w[p + "mlp.down_proj.weight"],
                }
            )

    def new_cache(self, rows: int, slots: int) -> KVCache:
        """An empty cache."""
        shape = (self.layers_n, rows, self.kv_heads, slots, self.head_dim)
        return KVCache(torch.zeros(shape), torch.zeros(shape))

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: KVCache, seen: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run new tokens and put their keys and values into the cache.

        Args:
            tokens: shape (rows, new).
            positions: shape (rows, new); also the slots written. Rows may differ.
            cache: the keys and values of what came before.
            seen: slots 0 to seen - 1 are attended to, where not later than the query.

        Returns:
            The normed last hidden state, shape (rows, new, hidden), and the captured residual
            streams, shape (rows, new, len(CAPTURED_LAYERS), hidden).
        """
        rows, new = tokens.shape
        groups = self.heads // self.kv_heads
        cos, sin = self.cos[positions].unsqueeze(2), self.sin[positions].unsqueeze(2)
        visible = torch.arange(seen) <= positions.unsqueeze(-1)  # (rows, new, seen)
        mask = visible.repeat_interleave(groups, dim=1) if new == 1 else visible
        mask = torch.zeros(mask.shape).masked_fill_(~mask, float("-inf")).unsqueeze(1)
        row_ids = torch.arange(rows).unsqueeze(1)
        x = F.embedding(tokens, self.embed)
        captured = []
        for i, layer in enumerate(self.layers):
            h = F.linear(rms_norm(x, layer["in"], self.eps), layer["qkv"])
            h = h.view(rows, new, self.heads + 2 * self.kv_heads, self.head_dim)
            qk, v = h[:, :, : self.heads + self.kv_heads], h[:, :, self.heads + self.kv_heads :]
            qk = rotate(qk, cos, sin)
            cache.keys[i][row_ids, :, positions] = qk[:, :, self.heads :]
            cache.values[i][row_ids, :, positions] = v
            k, v = cache.keys[i][:, :, :seen], cache.values[i][:, :, :seen]
            if new == 1:  # the query heads of a group share their keys: make them the queries
                q = qk[:, 0, : self.heads].view(rows, self.kv_heads, groups, self.head_dim)
                a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                a = a.reshape(rows, 1, self.hidden)
            else:
                q = qk[:, :, : self.heads].transpose(1, 2)
                a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
                a = a.transpose(1, 2).reshape(rows, new, self.hidden)
            x = x + F.linear(a, layer["o"])
            gate, up = F.linear(rms_norm(x, layer["post"], self.eps), layer["gate_up"]).chunk(
                2, dim=-1
            )
            x = x + F.linear(F.silu(gate) * up, layer["down"])
            if i + 1 in CAPTURED_LAYERS:
                captured.append(x)
        return rms_norm(x, self.norm, self.eps), torch.stack(captured, dim=2)
