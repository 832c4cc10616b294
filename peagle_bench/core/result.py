"""Results: a cell's metrics and its verdict."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from peagle_bench.core.plan import Cell

Standing = Literal["VALID", "INVALID", "ESTIMATE", "FAILED", "PENDING"]
"""FAILED: no numbers, its server did not serve. PENDING: not measured yet."""
STANDS: tuple[Standing, ...] = ("VALID", "ESTIMATE")
"""Standings whose numbers may be shown."""


class Finding(BaseModel):
    """One thing to know about a cell: what, and what to change."""

    model_config = ConfigDict(frozen=True)

    code: str
    text: str
    remedy: str = ""


class Verdict(BaseModel):
    """Whether a cell's numbers may be quoted."""

    model_config = ConfigDict(frozen=True)

    standing: Standing
    reasons: tuple[Finding, ...] = ()
    """Why it is not VALID."""
    flags: tuple[Finding, ...] = ()
    """What a reader must know although the cell stands."""


class CellResult(BaseModel):
    """summary.json: one cell, computed from its stored records."""

    model_config = ConfigDict(frozen=True)

    cell: Cell
    metrics: dict[str, float | None]
    """By metric name, base units; None is explained in `missing`."""
    missing: dict[str, str] = {}
    intervals: dict[str, tuple[float, float]] = {}
    """95 % intervals over prompts, by metric name."""
    by_position: tuple[float, ...] | None = None
    """Acceptance by draft position, shape (K,), each in [0, 1]."""
    conditional_by_position: tuple[float | None, ...] | None = None
    by_category: dict[str, float] = {}
    """Acceptance length by category, from per-request metrics."""
    by_turn: dict[int, float] = {}
    """Acceptance length by turn of the conversations, counted from 1."""
    scores: dict[str, int] = {}
    """Scored replies by what became of them; {} where nothing was scored."""
    verdict: Verdict
    errors: dict[str, int] = {}
    """Failed requests by cause."""
    facts: dict[str, Any] = {}
    """Started at, duration, server version, digests."""


class Comparison(BaseModel):
    """One method against another at the same suite and concurrency."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    depth: int | None
    versus: str
    versus_depth: int | None
    speedup: float
    """Ratio of OTPS over the repeats; above 1: faster than `versus`."""
    low: float | None
    """95 % interval, paired bootstrap over prompts; None with fewer than 2 shared prompts."""
    high: float | None
    prompts: int
    """Prompts answered by both."""
    length_difference: float | None = None
    """Acceptance length minus the other's, over the same prompts; None where either has none."""
    length_low: float | None = None
    """95 % interval of that difference, by the same bootstrap."""
    length_high: float | None = None
    standing: Standing
    """The worse of the two cells' standings."""


class Deviation(BaseModel):
    """One figure against a server with known truth: what it did, and what the harness said."""

    model_config = ConfigDict(frozen=True)

    method: str
    depth: int | None
    concurrency: int
    metric: str
    unit: str
    """`tok/s`, `s` or `tokens`"""
    truth: float
    measured: float
    bound: float
    """Largest |measured - truth| that is in order."""

    @property
    def within(self) -> bool:
        return abs(self.measured - self.truth) <= self.bound
