"""Whether greedy outputs are the baseline's, token for token.

Speculation must not change what the model says. Numerically it can: verifying K + 1 tokens is
another matrix product than decoding one, and two logits that tie may fall either way. So a match
rate stands beside that of the baseline against itself on another server, never alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from pydantic import BaseModel, ConfigDict

from peagle_bench.core.record import CellData, RequestRecord
from peagle_bench.core.result import STANDS, CellResult, Finding

FEWEST_EQUAL = 0.9
"""A smaller share of equal outputs is flagged: ties between logits do not explain it."""


class Match(BaseModel):
    """One method's outputs against the first baseline cell of the same suite and concurrency."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    depth: int | None
    compared: int
    """Requests that succeeded in both cells, repeats added up."""
    equal: int
    first_differences: tuple[int, ...]
    """Token index of the first difference of each unequal pair whose ids were kept, ascending."""

    @property
    def share(self) -> float | None:
        """Equal / compared, in [0, 1]; None for nothing."""
        return self.equal / self.compared if self.compared else None


def matches(
    results: Sequence[CellResult], data: Mapping[str, CellData], greedy: Mapping[str, bool]
) -> list[Match]:
    """Every method and depth against the baseline; the baseline's own further repeats too.

    data: by cell id. greedy: by suite; at a temperature above 0 outputs are drawn, and nothing is
    compared.
    """
    first: dict[tuple[str, int], CellResult] = {}
    groups: dict[tuple[str, int, str, int | None], list[CellResult]] = defaultdict(list)
    for r in results:
        if r.verdict.standing not in STANDS:
            continue
        where = (r.cell.suite, r.cell.concurrency)
        if r.cell.group.method == "baseline" and where not in first:
            first[where] = r
            continue
        groups[(*where, r.cell.group.method, r.cell.group.depth)].append(r)
    out = []
    for (suite, concurrency, method, depth), found in groups.items():
        base = first.get((suite, concurrency))
        if base is None or not greedy.get(suite, False):
            continue
        theirs = _outputs(data[base.cell.cell_id])
        pairs = [
            (mine, theirs[key])
            for r in found
            for key, mine in _outputs(data[r.cell.cell_id]).items()
            if key in theirs
        ]
        unequal = [(a, b) for a, b in pairs if a.output_digest != b.output_digest]
        out.append(
            Match(
                suite=suite,
                concurrency=concurrency,
                method=method,
                depth=depth,
                compared=len(pairs),
                equal=len(pairs) - len(unequal),
                first_differences=tuple(
                    sorted(
                        first_difference(a.token_ids, b.token_ids)
                        for a, b in unequal
                        if a.token_ids is not None and b.token_ids is not None
                    )
                ),
            )
        )
    return out


def flagged(results: Sequence[CellResult], found: Sequence[Match]) -> list[CellResult]:
    """The results, flagged where a tenth or more of a method's outputs are not the baseline's."""
    poor = {
        (m.suite, m.concurrency, m.method, m.depth): m
        for m in found
        if m.share is not None and m.share < FEWEST_EQUAL
    }
    out = []
    for r in results:
        group = r.cell.group
        match = poor.get((r.cell.suite, r.cell.concurrency, group.method, group.depth))
        if match is not None:
            finding = Finding(
                code="outputs-differ",
                text=f"{match.compared - match.equal} of {match.compared} greedy outputs are not "
                "the baseline's: speculation changed what the model says",
            )
            verdict = r.verdict.model_copy(update={"flags": (*r.verdict.flags, finding)})
            r = r.model_copy(update={"verdict": verdict})
        out.append(r)
    return out


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Index of the first token that differs; the shorter's length where one begins the other."""
    for i, (x, y) in enumerate(zip_longest(a, b)):
        if x != y:
            return i
    return len(a)


def _outputs(cell: CellData) -> dict[tuple[str, int], RequestRecord]:
    """Successful requests with a digest of their output, by prompt and turn."""
    return {(r.prompt_id, r.turn): r for r in cell.records if r.ok and r.output_digest is not None}
