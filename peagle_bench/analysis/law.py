"""Speedup = AL x t_step(baseline) / t_step(method): what steps and acceptance predict.

A step of the method emits AL tokens where the baseline's emits one, so decoding is faster by AL and
slower by what a step costs more: drafting, and verifying K + 1 tokens at once. The law is validated
to 0.02 by SPEED-Bench's authors. Beside it stands the measured ratio of decode speeds, from the
client's clock alone; a gap says that one of the two is not what it is taken for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from peagle_bench.analysis.metrics import (
    acceptance_length,
    emitted_length,
    step_gap_s,
    successful,
)
from peagle_bench.analysis.stats import mean
from peagle_bench.analysis.steptime import at_concurrency
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult

LARGEST_GAP = 0.05
"""A larger one is flagged."""


class Law(BaseModel):
    """One method at one K and C against the baseline; repeats are averaged."""

    model_config = ConfigDict(frozen=True)

    suite: str
    concurrency: int
    method: str
    depth: int | None
    predicted: float
    """AL x t_step(baseline) / t_step(method)"""
    measured: float
    """Decode tokens per second of a request over the baseline's: first tokens are left out."""
    acceptance_length: float
    emitted_length: float | None
    """Below AL where drafts were accepted beyond a stop or the output cap."""
    step_s: float
    baseline_step_s: float
    source: str
    """Where steps' times come from: `probe`, or `chunk gaps` of the client."""

    @property
    def gap(self) -> float:
        """measured / predicted - 1"""
        return self.measured / self.predicted - 1


def laws(results: Sequence[CellResult], data: Mapping[str, CellData]) -> list[Law]:
    """For every speculating method and depth with a baseline at the same suite and concurrency."""
    groups: dict[tuple[str, int, str, int | None], list[CellData]] = defaultdict(list)
    for r in results:
        if r.verdict.standing in ("VALID", "ESTIMATE"):
            c = r.cell
            key = (c.suite, c.concurrency, c.group.method, c.group.depth)
            groups[key].append(data[c.cell_id])
    out = []
    for (suite, concurrency, method, depth), mine in groups.items():
        base = groups.get((suite, concurrency, "baseline", None))
        length = _mean(mine, acceptance_length)
        if base is None or depth is None or length is None:
            continue
        source = "probe"
        steps = _mean(mine, _probed_step_s), _mean(base, _probed_step_s)
        if steps[0] is None or steps[1] is None:
            source, steps = "chunk gaps", (_mean(mine, step_gap_s), _mean(base, step_gap_s))
        speeds = _mean(mine, decode_tok_per_s), _mean(base, decode_tok_per_s)
        if not (steps[0] and steps[1] and speeds[0] and speeds[1]):
            continue
        out.append(
            Law(
                suite=suite,
                concurrency=concurrency,
                method=method,
                depth=depth,
                predicted=length * steps[1] / steps[0],
                measured=speeds[0] / speeds[1],
                acceptance_length=length,
                emitted_length=_mean(mine, emitted_length),
                step_s=steps[0],
                baseline_step_s=steps[1],
                source=source,
            )
        )
    return out


def decode_tok_per_s(data: CellData) -> float | None:
    """Σ (tokens - tokens of the first chunk) / Σ (last chunk - first chunk), over requests."""
    tokens = nanos = 0
    for r in successful(data):
        if r.chunk_tokens and 0 not in r.chunk_tokens:
            tokens += sum(r.chunk_tokens[1:])
            nanos += r.chunk_ns[-1] - r.chunk_ns[0]
    return tokens / (nanos / 1e9) if nanos else None


def _probed_step_s(data: CellData) -> float | None:
    times = at_concurrency(data.steps, data.concurrency)
    return times.step_s if times else None


def _mean(cells: Sequence[CellData], of: Callable[[CellData], float | None]) -> float | None:
    return mean([v for c in cells if (v := of(c)) is not None])
