"""95 % intervals of one cell's own figures, over prompts.

They say how far another draw of prompts would move a figure. How far another start of the server
would, only repeats show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peagle_bench.analysis.metrics import (
    acceptance_length,
    by_conversation,
    output_tok_per_s,
    tpot_s,
    ttft_s,
)
from peagle_bench.analysis.stats import mean, rate_interval
from peagle_bench.core.record import CellData, RequestRecord

Interval = tuple[float, float]


def cell_intervals(data: CellData, seed: int = 0) -> dict[str, Interval]:
    """By metric name: output_tok_per_s, ttft_s_mean, tpot_s_mean, acceptance_length.

    A prompt is drawn with all its turns. Absent where the metric is, or below 2 prompts.
    """
    prompts = [g for g in ([r for r in c if r.ok] for c in by_conversation(data).values()) if g]
    out: dict[str, Interval] = {}

    def keep(name: str, interval: Interval | None) -> None:
        if interval is not None:
            out[name] = interval

    keep("output_tok_per_s", _throughput(data, prompts, seed))
    for name, of in (("ttft_s_mean", ttft_s), ("tpot_s_mean", tpot_s)):
        keep(name, _mean(prompts, of, seed))
    accepted, drafts = _drafts(prompts)
    found = rate_interval(accepted, drafts, seed=seed)
    if acceptance_length(data) is not None and found is not None:
        out["acceptance_length"] = (1 + found[0], 1 + found[1])
    return out


def _throughput(
    data: CellData, prompts: Sequence[Sequence[RequestRecord]], seed: int
) -> Interval | None:
    """The spread of prompts' own speeds, carried to the cell's throughput."""
    point = output_tok_per_s(data)
    tokens = [float(sum(r.completion_tokens or 0 for r in p)) for p in prompts]
    seconds = [sum(r.chunk_ns[-1] - r.sent_ns for r in p) / 1e9 for p in prompts]
    interval = rate_interval(tokens, seconds, seed=seed)
    if point is None or interval is None or not sum(seconds):
        return None
    scale = point * sum(seconds) / sum(tokens) if sum(tokens) else 0.0
    return interval[0] * scale, interval[1] * scale


def _mean(
    prompts: Sequence[Sequence[RequestRecord]],
    of: Callable[[RequestRecord], float | None],
    seed: int,
) -> Interval | None:
    """Of the mean over requests: a prompt's sum over its number of requests."""
    held = [
        [v for r in p if r.completion_tokens is not None and (v := of(r)) is not None]
        for p in prompts
    ]
    told = [values for values in held if values]
    return rate_interval([sum(v) for v in told], [float(len(v)) for v in told], seed=seed)


def _drafts(prompts: Sequence[Sequence[RequestRecord]]) -> tuple[list[float], list[float]]:
    """Accepted drafts and verification steps by prompt."""
    specs = [[r.spec for r in p if r.spec is not None and r.spec.num_drafts] for p in prompts]
    told = [held for held in specs if held]
    return (
        [float(sum(s.num_accepted_tokens for s in held)) for held in told],
        [float(sum(s.num_drafts for s in held)) for held in told],
    )


def mean_of(intervals: Sequence[Interval]) -> Interval | None:
    """Over repeats: the mean of the bounds; None of none."""
    low, high = mean([i[0] for i in intervals]), mean([i[1] for i in intervals])
    return None if low is None or high is None else (low, high)
