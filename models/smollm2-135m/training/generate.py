"""Let the target answer the prompts greedily; store its tokens and hidden states in shards.

    python generate.py --target-path TARGET --prompts work/prompts.jsonl --out work/shards

A shard is a file of torch tensors: per example the tokens (prompt and reply), the prompt's
length, and the residual streams of target.CAPTURED_LAYERS at each token, in float16. Shards
that exist already are skipped, so an interrupted run is resumed by the same command.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from target import CAPTURED_LAYERS, Target
from transformers import AutoTokenizer


def encode(tokenizer, message: str) -> list[int]:
    """The tokens of a chat with one user message, up to where the reply begins."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def common_prefix(rows: list[list[int]]) -> int:
    """Number of leading tokens that all rows share (at least one token of each is left over)."""
    limit = min(map(len, rows)) - 1
    for i in range(limit):
        if len({row[i] for row in rows}) > 1:
            return i
    return limit


@torch.inference_mode()
def answer(
    target: Target, prompts: list[list[int]], max_tokens: int, chunk: int = 8
) -> list[dict[str, torch.Tensor | int]]:
    """Greedy replies to a batch of prompts of similar length.

    The last token of a reply is stored without hidden states of its own: nothing follows it.
    """
    rows = len(prompts)
    slots = max(map(len, prompts)) + max_tokens
    cache = target.new_cache(rows, slots)
    shape = (slots, len(CAPTURED_LAYERS), target.hidden)
    hidden = [torch.zeros(shape, dtype=torch.float16) for _ in range(rows)]
    shared = common_prefix(prompts)
    if shared:
        one = target.new_cache(1, shared)
        _, states = target.forward(
            torch.tensor([prompts[0][:shared]]), torch.arange(shared).unsqueeze(0), one, shared
        )
        cache.keys[:, :, :, :shared] = one.keys
        cache.values[:, :, :, :shared] = one.values
        for h in hidden:
            h[:shared] = states[0]
    next_tokens = torch.zeros(rows, dtype=torch.long)
    for start in range(0, rows, chunk):  # prefill
        part = prompts[start : start + chunk]
        longest = max(map(len, part))
        tokens = torch.zeros((len(part), longest - shared), dtype=torch.long)
        for r, prompt in enumerate(part):
            tokens[r, : len(prompt) - shared] = torch.tensor(prompt[shared:])
        positions = torch.arange(shared, longest).expand(len(part), -1)
        view = type(cache)(
            cache.keys[:, start : start + len(part)], cache.values[:, start : start + len(part)]
        )
        last, states = target.forward(tokens, positions, view, longest)
        ends = torch.tensor([len(p) - 1 - shared for p in part])
        final = last[torch.arange(len(part)), ends]
        next_tokens[start : start + len(part)] = (final @ target.lm_head.T).argmax(-1)
        for r, prompt in enumerate(part):
            hidden[start + r][shared : len(prompt)] = states[r, : len(prompt) - shared]
    replies: list[list[int]] = [[int(t)] for t in next_tokens]
    active = torch.tensor([r for r in range(rows) if replies[r][-1] != target.eos])
    cache_rows = torch.arange(rows)  # the example in each row of the cache
    for _ in range(max_tokens - 1):
        if len(active) == 0:
            break
        if len(active) < 0.8 * len(cache_rows):
            keep = torch.isin(cache_rows, active).nonzero().squeeze(1)
            cache, cache_rows = cache.select(keep), cache_rows[keep]
        lengths = [len(prompts[r]) + len(replies[r]) - 1 for r in cache_rows.tolist()]
        tokens = torch.tensor([[replies[r][-1]] for r in cache_rows.tolist()])
        positions = torch.tensor(lengths).unsqueeze(1)
        last, states = target.forward(tokens, positions, cache, max(lengths) + 1)
        chosen = (last[:, 0] @ target.lm_head.T).argmax(-1).tolist()
        states = states[:, 0].half()
        still = []
        active_set = set(active.tolist())
        for row, r in enumerate(cache_rows.tolist()):
            if r not in active_set:
                continue
            hidden[r][lengths[row]] = states[row]
            replies[r].append(chosen[row])
            if chosen[row] != target.eos:
                still.append(r)
        active = torch.tensor(still, dtype=torch.long)
    return [
        {
            "tokens": torch.tensor(prompts[r] + replies[r], dtype=torch.int32),
            "prompt_len": len(prompts[r]),
            "hidden": hidden[r][: len(prompts[r]) + len(replies[r]) - 1].clone(),
        }
        for r in range(rows)
    ]


def batches(rows: list[dict], size: int, seed: int) -> list[list[dict]]:
    """Rows of one kind and of similar length together; the batches in random order."""
    out = []
    wrapped = [r for r in rows if r["message"].startswith("Complete the following")]
    others = [r for r in rows if not r["message"].startswith("Complete the following")]
    for group in (wrapped, others):
        group = sorted(group, key=lambda r: len(r["tokens"]))
        out += [group[i : i + size] for i in range(0, len(group), size)]
    random.Random(seed).shuffle(out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-path", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-prompt", type=int, default=340)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(args.target_path)
    rows = [json.loads(line) for line in args.prompts.read_text().splitlines()]
    for row in rows:
        row["tokens"] = encode(tokenizer, row["message"])
    rows = [row for row in rows if len(row["tokens"]) <= args.max_prompt]
    target = Target(args.target_path)
    done = 0
    for number, batch in enumerate(batches(rows, args.batch, args.seed)):
        path = args.out / f"{args.prompts.stem}-{number:03d}.pt"
        if path.exists():
            continue
        start = time.monotonic()
        examples = answer(target, [row["tokens"] for row in batch], args.max_tokens)
        for row, example in zip(batch, examples, strict=True):
            reply = tokenizer.decode(example["tokens"][example["prompt_len"] :].tolist())
            example.update(id=row["id"], source=row["source"], reply=reply)
        torch.save(examples, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
        wall_s = time.monotonic() - start
        made = sum(len(e["tokens"]) - e["prompt_len"] for e in examples)
        done += made
        print(
            f"{path.name}: {len(batch)} prompts, {sum(e['prompt_len'] for e in examples)} prompt "
            f"tokens, {made} reply tokens, {wall_s:.0f} s, {made / wall_s:.0f} reply tok/s, "
            f"total {done}",
            flush=True,
        )


if __name__ == "__main__":
    main()
