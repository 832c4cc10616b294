"""Build the training prompts, free of HumanEval, and write them with a manifest.

python build_prompts.py --out work/prompts.jsonl --seed 1 --count 4000
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from decontaminate import Decontaminator
from docstrings import harvest
from instructions import make_instruction
from tasks import make_task, render

WRAPPER = (
    "Complete the following Python function. Reply with the whole function in one Python code "
    "block.\n\n```python\n{prompt}```"
)
# Shares of the prompts; tasks and docstrings are wrapped as a function to complete.
SHARES = {"tasks": 0.68, "docstrings": 0.14, "instructions": 0.18}


def signature(message: str) -> str | None:
    """The first line of a message that begins a function."""
    return next((line for line in message.splitlines() if line.startswith("def ")), None)


def candidates(seed: int, paragraphs: int) -> dict[str, Iterator[tuple[str, str]]]:
    """For each kind an endless or finite stream of (source, user message)."""
    rng = random.Random(seed)

    def tasks():
        while True:
            yield "tasks", WRAPPER.format(prompt=render(make_task(rng), rng))

    def docstrings():
        found = list(harvest(paragraphs))
        random.Random(seed + 1).shuffle(found)
        for origin, prompt in found:
            yield f"docstrings/{origin}", WRAPPER.format(prompt=prompt)

    def instructions():
        rng_instructions = random.Random(seed + 2)
        while True:
            yield "instructions", make_instruction(rng_instructions)

    return {"tasks": tasks(), "docstrings": docstrings(), "instructions": instructions()}


def build(
    seed: int,
    count: int,
    filter_: Decontaminator,
    shares: dict[str, float] = SHARES,
    paragraphs: int = 1,
    exclude: Iterable[str] = (),
) -> tuple[list[dict[str, str]], dict]:
    """The prompts (id, source, message) in random order, and the manifest of how they came.

    Args:
        seed: of every choice.
        count: prompts wanted.
        filter_: what a prompt must not overlap with.
        shares: of the kinds of prompts.
        paragraphs: how much of a docstring is taken.
        exclude: messages of an earlier round; functions with the same signature are left out.
    """
    streams = candidates(seed, paragraphs)
    taken = {s for s in map(signature, exclude) if s}
    rng = random.Random(seed + 3)
    seen: set[str] = set()
    rows: list[dict[str, str]] = []
    kept: collections.Counter[str] = collections.Counter()
    dropped: collections.Counter[str] = collections.Counter()
    names, weights = list(shares), list(shares.values())
    attempts = 0
    while len(rows) < count and attempts < 50 * count:
        attempts += 1
        kind = rng.choices(names, weights)[0]
        item = next(streams[kind], None)
        if item is None:  # the docstrings are used up
            continue
        source, message = item
        if message in seen or signature(message) in taken:
            dropped["duplicate"] += 1
            continue
        seen.add(message)
        if not filter_.is_clean(message):
            dropped["shares_8gram_with_humaneval"] += 1
            continue
        rows.append({"id": f"s{seed}-{len(rows):05d}", "source": source, "message": message})
        kept[source] += 1
    manifest = {
        "seed": seed,
        "shares": shares,
        "paragraphs": paragraphs,
        "prompts": len(rows),
        "kept_by_source": dict(sorted(kept.items())),
        "dropped": dict(sorted(dropped.items())),
        "protected_8grams": len(filter_),
    }
    return rows, manifest


def write_jsonl(rows: list[dict], path: Path) -> str:
    """Write one JSON object a line; the sha256 of the file."""
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--shares", type=json.loads, default=SHARES, help="JSON object")
    parser.add_argument("--paragraphs", type=int, default=1, help="of a docstring")
    parser.add_argument("--exclude", type=Path, help="prompts of an earlier round")
    args = parser.parse_args()
    earlier = args.exclude.read_text().splitlines() if args.exclude else []
    rows, manifest = build(
        args.seed,
        args.count,
        Decontaminator.for_humaneval(args.humaneval),
        args.shares,
        args.paragraphs,
        [json.loads(line)["message"] for line in earlier],
    )
    manifest["sha256"] = write_jsonl(rows, args.out)
    args.out.with_suffix(".manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
