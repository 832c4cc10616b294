"""The suites that ship, by name, and the prompts of a cell."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

from peagle_bench.core.names import resolve
from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.resources import data_root
from peagle_bench.yamlfile import read_model


def suite_names() -> list[str]:
    return sorted(p.stem for p in (data_root() / "suites").glob("*.yaml"))


def suite_named(name: str) -> Suite:
    """Raises UnknownName with near matches, ConfigError for a file that is no suite."""
    known = suite_names()
    return read_suite(data_root() / "suites" / f"{resolve('suite', name, known, {})}.yaml")


def read_suite(path: Path) -> Suite:
    """A suite's YAML file. Raises ConfigError naming the field that is wrong."""
    return read_model(path, Suite, "suite")


def load_prompts(suite: Suite) -> list[Prompt]:
    """Every prompt of the suite, in its own order. Raises SuiteUnavailable."""
    module = importlib.import_module(f"peagle_bench.suites.{suite.loader}")
    prompts: list[Prompt] = module.load(suite)
    return prompts


def select(prompts: list[Prompt], limit: int | None, seed: int) -> tuple[Prompt, ...]:
    """`limit` prompts drawn without replacement by `seed`, in their own order; all for None."""
    if limit is None or limit >= len(prompts):
        return tuple(prompts)
    chosen = sorted(random.Random(seed).sample(range(len(prompts)), limit))
    return tuple(prompts[i] for i in chosen)
