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
    """Every kind of finding in order of first appearance, reasons before flags.

    Where one kind has several texts (other figures in each cell), the first stands for all.
    """
    seen: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind in ("reasons", "flags"):
        for r in results:
            for finding in getattr(r.verdict, kind):
                text = finding.text + (f" ({finding.remedy})" if finding.remedy else "")
                standing: str = r.verdict.standing if kind == "reasons" else "flag"
                seen.setdefault((standing, finding.code), []).append((r.cell.label, text))
    lines = []
    for (standing, _), found in seen.items():
        texts = list(dict.fromkeys(text for _, text in found))
        labels = list(dict.fromkeys(label for label, _ in found))
        if len(texts) > 2:
            others = f"{len(found) - 1} more cells"
            lines.append(FindingLine(standing, labels[0], f"{texts[0]}; likewise {others}"))
            continue
        for text in texts:
            own = list(dict.fromkeys(label for label, t in found if t == text))
            where = " and ".join(own) if len(own) <= 2 else f"{len(own)} cells"
            lines.append(FindingLine(standing, where, text))
    return lines
