"""Reasons and flags of many cells, each said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_bench.core.result import CellResult


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One distinct finding and where it holds."""

    standing: str
    """The cells' standing for a reason, `flag` for what does not change it."""
    where: str
    text: str


def grouped_findings(results: Sequence[CellResult]) -> list[FindingLine]:
    """Every distinct finding in order of first appearance, reasons before flags."""
    seen: dict[tuple[str, str], list[str]] = {}
    standing: str
    for kind in ("reasons", "flags"):
        for r in results:
            for finding in getattr(r.verdict, kind):
                text = finding.text + (f" ({finding.remedy})" if finding.remedy else "")
                standing = r.verdict.standing if kind == "reasons" else "flag"
                seen.setdefault((standing, text), []).append(r.cell.label)
    lines = []
    for (standing, text), labels in seen.items():
        distinct = list(dict.fromkeys(labels))
        where = " and ".join(distinct) if len(distinct) <= 2 else f"{len(labels)} cells"
        if len(labels) == len(results) and len(results) > 1:
            where = "every cell"
        lines.append(FindingLine(standing, where, text))
    return lines
