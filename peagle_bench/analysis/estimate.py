"""Drafter latency from outside: how a step's time grows with K, where no probe can be placed.

A step at K drafts K tokens and verifies K + 1. Drafted one after another, both grow with K; drafted
in parallel, almost only verification does. So the slope of the time between chunks over K, less the
same slope of a method that drafts in parallel, is the time of one more sequential draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from peagle_bench.analysis.metrics import step_gap_s
from peagle_bench.analysis.steptime import at_concurrency
from peagle_bench.core.method import METHODS
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult

Key = tuple[str, int, str]


class DraftEstimate(BaseModel):
    """One sequentially drafting method at one suite and concurrency."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    less: str | None
    """The parallel method whose slope was taken off; None: none was run, and the time holds
    verification of one more token too."""
    per_draft_s: float
    """Seconds of one more sequential draft."""
    error_s: float | None
    """Its standard error; None below 3 depths."""
    probe_per_draft_s: float | None
    """The same slope of the probe's drafting times; None without a probe."""


def draft_estimates(
    results: Sequence[CellResult], data: Mapping[str, CellData]
) -> list[DraftEstimate]:
    """For every method that drafts sequentially and was run at two depths or more."""
    points: dict[Key, list[tuple[int, CellData]]] = defaultdict(list)
    for r in results:
        group = r.cell.group
        if group.depth is not None and r.verdict.standing in ("VALID", "ESTIMATE"):
            key = (r.cell.suite, r.cell.concurrency, group.method)
            points[key].append((group.depth, data[r.cell.cell_id]))
    out = []
    for (suite, concurrency, method), held in points.items():
        if METHODS[method].parallel_drafting or not METHODS[method].needs_head:
            continue
        own = _slope([(k, step_gap_s(d)) for k, d in held])
        if own is None:
            continue
        less, flat = _parallel(points, suite, concurrency)
        drafted = _slope([(k, _draft_s(d)) for k, d in held])
        errors = [own[1], *([flat[1]] if flat else [])]
        squares = [e * e for e in errors if e is not None]
        out.append(
            DraftEstimate(
                suite=suite,
                concurrency=concurrency,
                method=method,
                less=less,
                per_draft_s=own[0] - (flat[0] if flat else 0.0),
                error_s=sum(squares) ** 0.5 if len(squares) == len(errors) else None,
                probe_per_draft_s=drafted[0] if drafted else None,
            )
        )
    return out


def _parallel(
    points: Mapping[Key, Sequence[tuple[int, CellData]]], suite: str, concurrency: int
) -> tuple[str | None, tuple[float, float | None] | None]:
    """The parallel method with the most depths here, and its slope."""
    found = [
        (len({k for k, _ in held}), method, held)
        for (s, c, method), held in points.items()
        if (s, c) == (suite, concurrency) and METHODS[method].parallel_drafting
    ]
    for _, method, held in sorted(found, reverse=True, key=lambda f: f[0]):
        slope = _slope([(k, step_gap_s(d)) for k, d in held])
        if slope is not None:
            return method, slope
    return None, None


def _slope(points: Sequence[tuple[int, float | None]]) -> tuple[float, float | None] | None:
    """Least squares over K and its standard error; None below 2 depths, no error below 3 points."""
    told = [(k, y) for k, y in points if y is not None]
    if len({k for k, _ in told}) < 2:
        return None
    from scipy.stats import linregress

    fit = linregress([k for k, _ in told], [y for _, y in told])
    return float(fit.slope), float(fit.stderr) if len(told) > 2 else None


def _draft_s(data: CellData) -> float | None:
    times = at_concurrency(data.steps, data.concurrency)
    return times.draft_s if times else None
