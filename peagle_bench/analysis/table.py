"""The table that everything prints: one row per suite, concurrency, method and K."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from peagle_bench.analysis.compare import Key, worse
from peagle_bench.analysis.intervals import mean_of
from peagle_bench.analysis.stats import mean
from peagle_bench.core.plan import Cell, Plan
from peagle_bench.core.result import CellResult, Comparison, Standing

Name = TypeVar("Name", str, int)
_STAGES = ("step_s", "forward_s", "sample_s", "draft_s", "host_s")


class Row(BaseModel):
    """One method at one K and C, its repeats pooled."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    depth: int | None
    repeats: int
    """Cells pooled; 0: none has numbers."""
    output_tok_per_s: float | None = None
    """Σ tokens / Σ seconds over the repeats."""
    output_tok_per_s_low: float | None = None
    """Smallest and largest of the repeats; None for fewer than two."""
    output_tok_per_s_high: float | None = None
    request_tok_per_s: float | None = None
    acceptance_length: float | None = None
    emitted_length: float | None = None
    by_position: tuple[float, ...] | None = None
    by_category: dict[str, float] = {}
    """Acceptance length by category, mean over repeats."""
    by_turn: dict[int, float] = {}
    """Acceptance length by turn of the conversations, mean over repeats."""
    intervals: dict[str, tuple[float, float]] = {}
    """95 % over prompts, by metric name; the mean of the bounds over repeats."""
    pass_at_1: float | None = None
    """Mean over repeats."""
    step_s: float | None = None
    """A decode step with a full batch, from its start to the next one's; from the probe."""
    forward_s: float | None = None
    sample_s: float | None = None
    draft_s: float | None = None
    host_s: float | None = None
    ttft_s: float | None = None
    """Median over requests, mean over repeats."""
    tpot_s: float | None = None
    """Mean over requests and repeats."""
    output_tokens_mean: float | None = None
    versus_baseline: Comparison | None = None
    versus_eagle3: Comparison | None = None
    """At the same K."""
    standing: Standing
    findings: tuple[str, ...] = ()
    """Codes of reasons and flags, each once."""


def build_rows(
    plan: Plan,
    results: Sequence[CellResult],
    comparisons: Sequence[Comparison],
    failed: Container[str] = (),
) -> list[Row]:
    """Every row of the plan in its order.

    failed: slugs of server groups that could not be served; a row without numbers is FAILED when
    one of its groups is among them, else PENDING.
    """
    by_key: dict[Key, list[CellResult]] = defaultdict(list)
    for r in results:
        by_key[_key(r.cell)].append(r)
    versus = {(c.suite, c.concurrency, c.method, c.depth, c.versus): c for c in comparisons}
    rows = []
    for key in dict.fromkeys(_key(c) for c in plan.cells):
        suite, concurrency, method, depth = key
        found = by_key.get(key, [])
        slugs = {c.group.slug for c in plan.cells if _key(c) == key}
        lost = any(slug in failed for slug in slugs)
        standing: Standing = "VALID" if found else "FAILED" if lost else "PENDING"
        for r in found:
            standing = worse(standing, r.verdict.standing)
        rows.append(
            Row(
                suite=suite,
                concurrency=concurrency,
                method=method,
                depth=depth,
                repeats=len(found),
                **_pooled(found),
                versus_baseline=versus.get((*key, "baseline")),
                versus_eagle3=versus.get((*key, "eagle3")),
                standing=standing,
                findings=_codes(found),
            )
        )
    return rows


def best_rows(rows: Sequence[Row]) -> Mapping[tuple[str, int, str], Row]:
    """By suite, concurrency and method: the K with the highest OTPS among rows that stand."""
    best: dict[tuple[str, int, str], Row] = {}
    for row in rows:
        if row.output_tok_per_s is None or row.standing not in ("VALID", "ESTIMATE"):
            continue
        key = (row.suite, row.concurrency, row.method)
        held = best.get(key)
        if held is None or row.output_tok_per_s > (held.output_tok_per_s or 0.0):
            best[key] = row
    return best


def _key(cell: Cell) -> Key:
    return cell.suite, cell.concurrency, cell.group.method, cell.group.depth


def _pooled(found: Sequence[CellResult]) -> dict[str, Any]:
    def average(name: str) -> float | None:
        return mean([v for r in found if (v := r.metrics.get(name)) is not None])

    speeds = [v for r in found if (v := r.metrics.get("output_tok_per_s")) is not None]
    told = [r for r in found if r.metrics.get("output_tok_per_s") is not None]
    seconds = sum(r.metrics["duration_s"] or 0.0 for r in told)
    tokens = sum(r.metrics["output_tokens"] or 0.0 for r in told)
    shares = [r.by_position for r in found if r.by_position is not None]
    same = bool(shares) and len({len(s) for s in shares}) == 1
    return {
        "output_tok_per_s": tokens / seconds if seconds else None,
        "output_tok_per_s_low": min(speeds) if len(speeds) > 1 else None,
        "output_tok_per_s_high": max(speeds) if len(speeds) > 1 else None,
        "request_tok_per_s": average("request_tok_per_s"),
        "acceptance_length": average("acceptance_length"),
        "emitted_length": average("emitted_length"),
        "by_position": (
            tuple(sum(s) / len(s) for s in zip(*shares, strict=True)) if same else None
        ),
        "by_category": _averaged([r.by_category for r in found]),
        "by_turn": _averaged([r.by_turn for r in found]),
        **{name: average(f"{name}_mean") for name in _STAGES},
        "pass_at_1": average("pass_at_1"),
        "intervals": _intervals(found),
        "ttft_s": average("ttft_s_p50"),
        "tpot_s": average("tpot_s_mean"),
        "output_tokens_mean": average("output_tokens_mean"),
    }


def _intervals(found: Sequence[CellResult]) -> dict[str, tuple[float, float]]:
    names = dict.fromkeys(name for r in found for name in r.intervals)
    held = {n: mean_of([r.intervals[n] for r in found if n in r.intervals]) for n in names}
    return {name: interval for name, interval in held.items() if interval is not None}


def _averaged(told: Sequence[Mapping[Name, float]]) -> dict[Name, float]:
    """Mean by key over the repeats that have it."""
    names = dict.fromkeys(name for held in told for name in held)
    return {
        n: sum(values) / len(values) for n in names if (values := [h[n] for h in told if n in h])
    }


def _codes(found: Sequence[CellResult]) -> tuple[str, ...]:
    codes = [f.code for r in found for f in (*r.verdict.reasons, *r.verdict.flags)]
    return tuple(dict.fromkeys(codes))
