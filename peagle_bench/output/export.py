"""Cells as CSV: one line per cell, base units, empty where a value does not exist."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from peagle_bench.analysis.metrics import METRICS
from peagle_bench.core.result import CellResult

_HEAD = ("cell_id", "suite", "method", "depth", "concurrency", "repeat", "standing", "findings")


def cells_csv(results: Sequence[CellResult]) -> str:
    """The text of cells.csv; columns are the cell, its verdict, then every metric."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_HEAD, *(m.name for m in METRICS)])
    for r in results:
        group, verdict = r.cell.group, r.verdict
        codes = [f.code for f in (*verdict.reasons, *verdict.flags)]
        values = [r.metrics.get(m.name) for m in METRICS]
        writer.writerow(
            [
                r.cell.cell_id,
                r.cell.suite,
                group.method,
                "" if group.depth is None else group.depth,
                r.cell.concurrency,
                group.repeat,
                verdict.standing,
                " ".join(dict.fromkeys(codes)),
                *("" if v is None else repr(v) for v in values),
            ]
        )
    return out.getvalue()
