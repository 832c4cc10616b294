"""Peak: each method at its own best K, without the selection's own bias.

The best of several K is partly the luckiest. So K is chosen on one half of the prompts, and the
speedup is taken on the other half. (Base, the comparison at the same K, is `compare.speedups`.)
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from peagle_bench.analysis.compare import served_by_prompt
from peagle_bench.analysis.stats import ratio_interval
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult

Served = Mapping[str, tuple[float, float]]
"""(tokens, seconds from send to last token) by prompt, repeats summed."""
FEWEST = 4
"""Prompts below which no half says anything."""


class Peak(BaseModel):
    """One method's best K against another's at one suite and concurrency."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    depth: int | None
    """Chosen on the first half."""
    versus: str
    versus_depth: int | None
    speedup: float
    """Ratio of tokens per second of service, on the second half."""
    low: float | None
    high: float | None
    prompts: int
    """In the second half."""


def peaks(results: Sequence[CellResult], data: Mapping[str, CellData], seed: int = 0) -> list[Peak]:
    """Every method with several K against the baseline, and against EAGLE-3 at its own best K."""
    groups: dict[tuple[str, int, str, int | None], list[CellResult]] = defaultdict(list)
    for r in results:
        if r.verdict.standing in ("VALID", "ESTIMATE"):
            c = r.cell
            groups[(c.suite, c.concurrency, c.group.method, c.group.depth)].append(r)
    served = {key: served_by_prompt(found, data) for key, found in groups.items()}
    out = []
    for suite, concurrency in dict.fromkeys((s, c) for s, c, _, _ in served):
        here = {(m, k): v for (s, c, m, k), v in served.items() if (s, c) == (suite, concurrency)}
        shared = sorted(set.intersection(*(set(v) for v in here.values())))
        methods = [m for m in dict.fromkeys(m for m, _ in here) if m != "baseline"]
        several = any(sum(m == name for m, _ in here) > 1 for name in methods)
        if len(shared) < FEWEST or not several:
            continue
        order = random.Random(seed).sample(shared, len(shared))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        best = {name: _best(here, name, first) for name in dict.fromkeys(m for m, _ in here)}
        for name in methods:
            for versus in ("baseline", "eagle3"):
                if versus in best and versus != name:
                    a, b = here[(name, best[name])], here[(versus, best[versus])]
                    out.append(
                        _peak(suite, concurrency, name, best[name], versus, best[versus],
                              a, b, second, seed)
                    )  # fmt: skip
    return out


def _best(
    here: Mapping[tuple[str, int | None], Served], method: str, prompts: Sequence[str]
) -> int | None:
    """The K that served these prompts fastest."""
    depths = [k for m, k in here if m == method]
    return max(depths, key=lambda k: _rate(here[(method, k)], prompts))


def _peak(
    suite: str,
    concurrency: int,
    method: str,
    depth: int | None,
    versus: str,
    versus_depth: int | None,
    a: Served,
    b: Served,
    prompts: Sequence[str],
    seed: int,
) -> Peak:
    interval = ratio_interval(
        [a[p][0] for p in prompts],
        [a[p][1] for p in prompts],
        [b[p][0] for p in prompts],
        [b[p][1] for p in prompts],
        seed=seed,
    )
    return Peak(
        suite=suite,
        concurrency=concurrency,
        method=method,
        depth=depth,
        versus=versus,
        versus_depth=versus_depth,
        speedup=_rate(a, prompts) / _rate(b, prompts),
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        prompts=len(prompts),
    )


def _rate(held: Served, prompts: Sequence[str]) -> float:
    return sum(held[p][0] for p in prompts) / sum(held[p][1] for p in prompts)
