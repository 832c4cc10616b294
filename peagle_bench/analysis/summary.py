"""One cell's stored records into its result."""

from __future__ import annotations

from collections import Counter
from typing import Any

from peagle_bench.analysis import metrics
from peagle_bench.analysis.intervals import cell_intervals
from peagle_bench.analysis.validity import Terms, verdict
from peagle_bench.core.plan import Cell
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult


def summarise(cell: Cell, data: CellData, terms: Terms, facts: dict[str, Any]) -> CellResult:
    """Every metric, why any is missing, and the verdict."""
    values = {m.name: m.compute(data) for m in metrics.METRICS}
    return CellResult(
        cell=cell,
        metrics=values,
        missing={m.name: m.missing for m in metrics.METRICS if values[m.name] is None},
        intervals=cell_intervals(data),
        by_position=metrics.acceptance_by_position(data),
        conditional_by_position=metrics.conditional_by_position(data),
        by_category=metrics.acceptance_length_by_category(data),
        by_turn=metrics.acceptance_length_by_turn(data),
        scores=dict(Counter(r.score for r in data.records if r.score is not None)),
        verdict=verdict(data, terms),
        errors=dict(Counter(r.error for r in data.records if r.error is not None)),
        facts=facts,
    )
