"""Choose the draft vocabulary that both heads share.

    python build_vocabulary.py --target-path TARGET --shards work/shards \\
        --pool work/prompts2.jsonl --out work/vocabulary.pt
"""

from __future__ import annotations

import argparse
import json
from itertools import chain
from pathlib import Path

import torch
from dataset import Replies, draft_vocabulary
from decontaminate import Decontaminator
from generate import encode
from transformers import AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-path", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--pool", type=Path, required=True, help="prompts, answered or not")
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.target_path)
    training, held_out = Replies(args.shards, Decontaminator.for_humaneval(args.humaneval)).split()
    replies = [e["tokens"][e["prompt_len"] :].tolist() for e in training]
    messages = [json.loads(line)["message"] for line in args.pool.read_text().splitlines()]
    pool = [encode(tokenizer, message) for message in messages]
    vocabulary = draft_vocabulary(
        chain(*replies), chain(*pool), args.size, (tokenizer.eos_token_id,)
    )
    torch.save(vocabulary, args.out)
    known = set(vocabulary.tolist())
    for name, rows in (("training", training), ("held-out", held_out)):
        tokens = [t for e in rows for t in e["tokens"][e["prompt_len"] :].tolist()]
        covered = sum(t in known for t in tokens) / len(tokens)
        print(f"{name}: {covered:.4f} of reply tokens covered")


if __name__ == "__main__":
    main()
