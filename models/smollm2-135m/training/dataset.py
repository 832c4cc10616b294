"""Shards of target replies as training batches."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from decontaminate import Decontaminator
from target import CAPTURED_LAYERS, rms_norm

HELD_OUT_EVERY = 25  # one example in this many is kept for validation


@dataclass
class Batch:
    """Examples padded to one length.

    tokens: (rows, slots + depth), zero-padded. states: (rows, slots, aux * hidden).
    anchors: (rows, anchors), padded with the last one; weight: 1 for a real anchor, else 0.
    final: normed last hidden states of the target at each slot, (rows, slots, hidden).
    last: index of the last token of each row, (rows,).
    """

    tokens: torch.Tensor
    states: torch.Tensor
    anchors: torch.Tensor
    weight: torch.Tensor
    final: torch.Tensor
    last: torch.Tensor


class Replies:
    """All clean examples of a directory of shards, memory-mapped."""

    def __init__(self, directory: Path, filter_: Decontaminator | None) -> None:
        self.examples: list[dict] = []
        self.dropped = 0
        for path in sorted(directory.glob("*.pt")):
            for example in torch.load(path, mmap=True, weights_only=True):
                # A reply of three tokens or fewer has no slot with a draft to check.
                if len(example["tokens"]) - example["prompt_len"] < 4:
                    continue
                if filter_ is not None and not filter_.is_clean(example["reply"]):
                    self.dropped += 1
                    continue
                self.examples.append(example)

    def split(self) -> tuple[list[dict], list[dict]]:
        """(training, held-out) examples; the split depends on nothing but the example's id."""
        held_out = [e for e in self.examples if int(e["id"][-5:]) % HELD_OUT_EVERY == 0]
        training = [e for e in self.examples if int(e["id"][-5:]) % HELD_OUT_EVERY]
        return training, held_out


def draft_vocabulary(
    replies: Iterable[int], pool: Iterable[int], size: int, always: tuple[int, ...]
) -> torch.Tensor:
    """The token ids most likely in a reply, ascending, shape (size,).

    Args:
        replies: all tokens of the replies.
        pool: all tokens of a larger pool of prompts, answered or not: a reply repeats much of its
            prompt, and a thousand replies alone show too few words. Both count for one half.
        size: of the vocabulary.
        always: ids that belong to it in any case.
    """
    in_replies, in_pool = collections.Counter(replies), collections.Counter(pool)
    share = {
        token: in_replies[token] / max(1, in_replies.total())
        + in_pool[token] / max(1, in_pool.total())
        for token in in_replies | in_pool
    }
    ranked = sorted(share, key=lambda token: (-share[token], token))
    chosen = list(dict.fromkeys([*always, *ranked]))[:size]
    if len(chosen) < size:
        raise ValueError(f"{len(chosen)} distinct tokens cannot fill a vocabulary of {size}")
    return torch.tensor(sorted(chosen))


def state_columns(layers: tuple[int, ...]) -> list[int]:
    """Where the shards keep these layers."""
    return [CAPTURED_LAYERS.index(layer) for layer in layers]


def state_scale(examples: list[dict], layers: tuple[int, ...]) -> torch.Tensor:
    """One over the root mean square of each channel of the layers, shape (layers * hidden,).

    The first token is left out: its state is the same everywhere and a thousand times larger.
    """
    columns = state_columns(layers)
    sample = torch.cat([e["hidden"][1:][:, columns] for e in examples[:32]]).float()
    return 1.0 / sample.square().mean(dim=0).sqrt().flatten()


def collate(
    rows: list[dict], aux: tuple[int, ...], norm: torch.Tensor, eps: float, depth: int
) -> Batch:
    """Pad some examples to a batch. An anchor needs only its first draft inside the reply."""
    columns = state_columns(aux)
    final_column = CAPTURED_LAYERS.index(max(CAPTURED_LAYERS))
    lengths = [len(e["tokens"]) for e in rows]
    slots = max(lengths) - 1
    n, hidden = len(rows), rows[0]["hidden"].shape[-1]
    tokens = torch.zeros((n, slots + depth + 1), dtype=torch.long)
    states = torch.zeros((n, slots, len(aux) * hidden))
    final = torch.zeros((n, slots, hidden))
    count = max(length - e["prompt_len"] - 1 for e, length in zip(rows, lengths, strict=True))
    anchors = torch.zeros((n, count), dtype=torch.long)
    weight = torch.zeros((n, count))
    for r, (e, length) in enumerate(zip(rows, lengths, strict=True)):
        tokens[r, :length] = e["tokens"].long()
        h = e["hidden"].float()
        states[r, : length - 1] = h[:, columns].reshape(length - 1, -1)
        final[r, : length - 1] = rms_norm(h[:, final_column], norm, eps)
        own = torch.arange(e["prompt_len"] - 1, length - 2)
        anchors[r, : len(own)] = own
        anchors[r, len(own) :] = own[-1]
        weight[r, : len(own)] = 1.0
    return Batch(tokens, states, anchors, weight, final, torch.tensor(lengths) - 1)


def epoch(examples: list[dict], rows: int, rng: random.Random) -> Iterator[list[dict]]:
    """The examples once, in batches of similar length."""
    order = sorted(examples, key=lambda e: len(e["tokens"]) + rng.random() * 60)
    groups = [order[i : i + rows] for i in range(0, len(order), rows)]
    rng.shuffle(groups)
    yield from groups
