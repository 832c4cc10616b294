"""Describe the training data: sources, counts and digests, but not the data itself.

    python build_manifest.py --shards work/shards --prompts work/prompts1.jsonl \
        work/prompts2.jsonl --out manifest.json
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
from pathlib import Path

from dataset import HELD_OUT_EVERY, Replies
from decontaminate import NGRAM_WORDS, Decontaminator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, nargs="+", required=True)
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    replies = Replies(args.shards, Decontaminator.for_humaneval(args.humaneval))
    training, held_out = replies.split()
    digest = hashlib.sha256()
    sources: collections.Counter[str] = collections.Counter()
    for example in training:
        digest.update(" ".join(map(str, example["tokens"].tolist())).encode() + b"\n")
        sources[example["source"]] += 1
    rounds = []
    for path in args.prompts:
        manifest = json.loads(path.with_suffix(".manifest.json").read_text())
        if hashlib.sha256(path.read_bytes()).hexdigest() != manifest["sha256"]:
            raise ValueError(f"{path} is not the file that its manifest describes")
        rounds.append(manifest)
    manifest = {
        "filter": f"no {NGRAM_WORDS}-gram of words of a HumanEval prompt or canonical solution",
        "prompts": rounds,
        "replies": {
            "by": "the target itself, greedy, at most 128 tokens",
            "training_examples": len(training),
            "held_out_examples": len(held_out),
            "held_out": f"ids divisible by {HELD_OUT_EVERY}",
            "dropped_by_8gram_filter": replies.dropped,
            "reply_tokens": sum(len(e["tokens"]) - e["prompt_len"] for e in training),
            "prompt_tokens": sum(e["prompt_len"] for e in training),
            "examples_by_source": dict(sorted(sources.items())),
            "sha256_of_tokens": digest.hexdigest(),
        },
    }
    args.out.write_text(json.dumps(manifest, indent=1) + "\n")
    print(json.dumps(manifest["replies"], indent=1))


if __name__ == "__main__":
    main()
