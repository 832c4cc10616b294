"""Every metric of a cell: name, unit, which way is better, and how it is computed.

Base units throughout (seconds, tokens). A function returns None when the metric does not exist
for the cell, with the reason in `missing_reason`; it never returns 0 for "unknown".
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from peagle_bench.analysis.stats import mean, percentile
from peagle_bench.analysis.steptime import at_concurrency, full_steps
from peagle_bench.core.record import CellData, RequestRecord

Better = Literal["higher", "lower", "neither"]
Group = TypeVar("Group", str, int)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table of metrics."""

    name: str
    unit: str
    better: Better
    compute: Callable[[CellData], float | None]
    missing: str
    """Why it may be None."""


def successful(data: CellData) -> list[RequestRecord]:
    """Requests that count: no error. A failed one is in no numerator and no latency."""
    return [r for r in data.records if r.ok]


def by_conversation(data: CellData) -> dict[str, list[RequestRecord]]:
    """Records by prompt: one for a single request, one per turn for a conversation."""
    out: dict[str, list[RequestRecord]] = {}
    for r in data.records:
        out.setdefault(r.prompt_id, []).append(r)
    return out


def first_chunk_tokens(record: RequestRecord) -> float:
    """Tokens in the first chunk that had any.

    Where the server does not tell tokens per chunk: completion tokens per chunk on average.
    """
    if record.chunk_tokens[0] > 0:
        return float(record.chunk_tokens[0])
    return (record.completion_tokens or 0) / len(record.chunk_ns)


def ttft_s(record: RequestRecord) -> float:
    """Scheduled send to the arrival of the first chunk with a token, in seconds."""
    return (record.chunk_ns[0] - record.scheduled_ns) / 1e9


def tpot_s(record: RequestRecord) -> float | None:
    """(t_last - t_first) / (n - n_first), in seconds per token; None when n = n_first."""
    assert record.completion_tokens is not None
    after = record.completion_tokens - first_chunk_tokens(record)
    if after <= 0:
        return None
    return (record.chunk_ns[-1] - record.chunk_ns[0]) / 1e9 / after


def chunk_gaps_s(record: RequestRecord) -> list[float]:
    """Time between chunks that carried tokens: a step's time at stream interval 1."""
    times = record.chunk_ns
    return [(b - a) / 1e9 for a, b in itertools.pairwise(times)]


def duration_s(data: CellData) -> float | None:
    """First successful request's send to the last token's arrival."""
    good = successful(data)
    if not good:
        return None
    return (max(r.chunk_ns[-1] for r in good) - min(r.sent_ns for r in good)) / 1e9


def _counted(data: CellData) -> list[RequestRecord]:
    """Successful requests whose completion tokens the server told."""
    return [r for r in successful(data) if r.completion_tokens is not None]


def output_tok_per_s(data: CellData) -> float | None:
    """Σ completion tokens of successful requests / (last token's arrival - first send)."""
    good, seconds = successful(data), duration_s(data)
    if not seconds or len(_counted(data)) < len(good):
        return None
    return sum(r.completion_tokens or 0 for r in good) / seconds


def steady_output_tok_per_s(data: CellData) -> float | None:
    """Tokens that arrived while C requests were in flight / the time that held.

    From the moment the C-th conversation began to the end of the first one after which none was
    left to begin. None when tokens per chunk are not told, when a request failed, or when there
    were fewer than C conversations.
    """
    conversations = by_conversation(data)
    count, total = data.concurrency, len(conversations)
    if total < count or any(not r.ok or 0 in r.chunk_tokens for r in data.records):
        return None
    start = sorted(min(r.sent_ns for r in c) for c in conversations.values())[count - 1]
    end = sorted(max(r.end_ns for r in c) for c in conversations.values())[total - count]
    if end <= start:
        return None
    tokens = sum(
        n
        for r in data.records
        for t, n in zip(r.chunk_ns, r.chunk_tokens, strict=True)
        if start < t <= end
    )
    return tokens / ((end - start) / 1e9)


def request_tok_per_s(data: CellData) -> float | None:
    """Mean over requests of 1 / TPOT: what one user sees once tokens flow."""
    return mean([1 / t for t in _tpots(data) if t > 0])


def acceptance_length(data: CellData) -> float | None:
    """Mean tokens emitted per verification step, in [1, K + 1], from the server's counters.

    1 + num_accepted_tokens / num_drafts: the bonus token counts, as in vLLM. None when no draft
    was made.
    """
    delta = data.delta
    if not delta.num_drafts or delta.num_accepted_tokens is None:
        return None
    return 1 + delta.num_accepted_tokens / delta.num_drafts


def request_acceptance_length(data: CellData) -> float | None:
    """The same, from per-request metrics pooled over successful requests."""
    specs = [r.spec for r in successful(data) if r.spec is not None]
    drafts = sum(s.num_drafts for s in specs)
    return 1 + sum(s.num_accepted_tokens for s in specs) / drafts if drafts else None


def mean_request_acceptance_length(data: CellData) -> float | None:
    """Mean over requests of each one's acceptance length: every request weighs the same."""
    specs = [r.spec for r in successful(data) if r.spec is not None and r.spec.num_drafts]
    return mean([1 + s.num_accepted_tokens / s.num_drafts for s in specs])


def emitted_length(data: CellData) -> float | None:
    """Σ (tokens - tokens of the first chunk) / Σ (chunks - 1): what was emitted per step.

    A chunk is a step at stream interval 1 as long as the server did not merge any; None when a
    chunk holds more than K + 1 tokens (so it did), or tokens per chunk are not told. Tokens
    beyond a stop or the output cap are not in it, so it is at most the acceptance length.
    """
    tokens = steps = 0
    most = (data.depth or 0) + 1
    for record in successful(data):
        if 0 in record.chunk_tokens or max(record.chunk_tokens) > most:
            return None
        tokens += sum(record.chunk_tokens[1:])
        steps += len(record.chunk_tokens) - 1
    return tokens / steps if steps else None


def step_gap_s(data: CellData) -> float | None:
    """Mean time between chunks where each is one step's: a step as the client sees it.

    None where a chunk holds several steps, or tokens per chunk are not told.
    """
    if emitted_length(data) is None:
        return None
    return mean([g for r in successful(data) for g in chunk_gaps_s(r)])


def acceptance_rate(data: CellData) -> float | None:
    """Accepted drafts / drafted tokens, in [0, 1]."""
    delta = data.delta
    if not delta.num_draft_tokens or delta.num_accepted_tokens is None:
        return None
    return delta.num_accepted_tokens / delta.num_draft_tokens


def acceptance_by_position(data: CellData) -> tuple[float, ...] | None:
    """Share of drafts whose i-th token was accepted: shape (K,), non-increasing, in [0, 1]."""
    delta = data.delta
    if not delta.num_drafts or delta.accepted_per_pos is None:
        return None
    return tuple(a / delta.num_drafts for a in delta.accepted_per_pos)


def conditional_by_position(data: CellData) -> tuple[float | None, ...] | None:
    """Acceptance of position i among drafts whose position i - 1 was accepted: shape (K,)."""
    shares = acceptance_by_position(data)
    if shares is None:
        return None
    before = (1.0, *shares[:-1])
    return tuple(s / b if b else None for s, b in zip(shares, before, strict=True))


def acceptance_length_by_category(data: CellData) -> dict[str, float]:
    """Pooled acceptance length of each category, from per-request metrics."""
    return _acceptance_length_by(data, lambda r: r.category)


def acceptance_length_by_turn(data: CellData) -> dict[int, float]:
    """Pooled acceptance length of each turn of the conversations, from per-request metrics."""
    return _acceptance_length_by(data, lambda r: r.turn)


def _acceptance_length_by(
    data: CellData, key: Callable[[RequestRecord], Group]
) -> dict[Group, float]:
    drafts: Counter[Group] = Counter()
    accepted: Counter[Group] = Counter()
    for r in successful(data):
        if r.spec is not None:
            drafts[key(r)] += r.spec.num_drafts
            accepted[key(r)] += r.spec.num_accepted_tokens
    return {group: 1 + accepted[group] / n for group, n in sorted(drafts.items()) if n}


def truncated_share(data: CellData) -> float | None:
    """Successful requests that ended at the output cap / successful requests."""
    good = successful(data)
    return mean([float(r.finish_reason == "length") for r in good])


def pass_at_1(data: CellData) -> float | None:
    """Replies whose program passes its problem's tests / scored replies, in [0, 1].

    Scored: every one but `infra_error`, where the sandbox itself failed. A reply without code, or
    cut off at the output cap, is a fail.
    """
    scores = [r.score for r in data.records if r.score not in (None, "infra_error")]
    return mean([float(s == "passed") for s in scores])


def _tpots(data: CellData) -> list[float]:
    found = (tpot_s(r) for r in _counted(data))
    return [t for t in found if t is not None]


def _gaps(data: CellData) -> list[float]:
    return [g for r in successful(data) for g in chunk_gaps_s(r)]


def _spread(
    name: str, unit: str, values: Callable[[CellData], Sequence[float]], missing: str
) -> tuple[Metric, ...]:
    """The mean and the percentiles of one quantity, lower being better."""
    rows = [Metric(f"{name}_mean", unit, "lower", lambda d: mean(values(d)), missing)]
    for share, suffix in ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99")):
        rows.append(
            Metric(
                f"{name}_{suffix}",
                unit,
                "lower",
                lambda d, s=share: percentile(values(d), s),  # type: ignore[misc]
                f"{missing}, or too few of them for {suffix}",
            )
        )
    return tuple(rows)


_NO_PROBE = "the server was not probed, or its batch was never full of decoding requests"


def _stage(name: str) -> Callable[[CellData], float | None]:
    """Mean seconds of a stage of the decode steps whose batch was full."""

    def compute(data: CellData) -> float | None:
        times = at_concurrency(data.steps, data.concurrency)
        if times is None:
            return None
        value: float = getattr(times, name)
        return value

    return compute


def _draft_times(data: CellData) -> list[float]:
    steps = full_steps(data.steps, data.concurrency)
    return [s.draft_s for s, _ in steps if s.draft_s is not None]


_NO_DRAFT = "no draft was made, or the server has no such counter"
_NO_GOOD = "no request succeeded"
_NO_SPEC = "the server gives no per-request metrics"

METRICS: tuple[Metric, ...] = (
    Metric("output_tok_per_s", "tok/s", "higher", output_tok_per_s, "usage missing"),
    Metric(
        "steady_output_tok_per_s",
        "tok/s",
        "higher",
        steady_output_tok_per_s,
        "a request failed, tokens per chunk are not told, or C was never reached",
    ),
    Metric("request_tok_per_s", "tok/s", "higher", request_tok_per_s, _NO_GOOD),
    *_spread("ttft_s", "s", lambda d: [ttft_s(r) for r in successful(d)], _NO_GOOD),
    *_spread("tpot_s", "s", _tpots, "no request had more than one chunk of tokens"),
    *_spread("chunk_gap_s", "s", _gaps, "no request had more than one chunk of tokens"),
    Metric("acceptance_length", "tokens", "higher", acceptance_length, _NO_DRAFT),
    Metric(
        "acceptance_length_per_request", "tokens", "higher", request_acceptance_length, _NO_SPEC
    ),
    Metric(
        "acceptance_length_mean_of_requests",
        "tokens",
        "higher",
        mean_request_acceptance_length,
        _NO_SPEC,
    ),
    Metric(
        "emitted_length",
        "tokens",
        "higher",
        emitted_length,
        "chunks were merged, or tokens per chunk are not told",
    ),
    *(
        Metric(f"{name}_mean", "s", "lower", _stage(name), _NO_PROBE)
        for name in ("step_s", "forward_s", "sample_s", "host_s")
    ),
    *_spread("draft_s", "s", _draft_times, _NO_PROBE),
    Metric("acceptance_rate", "share", "higher", acceptance_rate, _NO_DRAFT),
    Metric("duration_s", "s", "neither", duration_s, _NO_GOOD),
    Metric(
        "output_tokens",
        "tokens",
        "neither",
        lambda d: float(sum(r.completion_tokens or 0 for r in _counted(d))) or None,
        "usage missing",
    ),
    Metric(
        "output_tokens_mean",
        "tokens",
        "neither",
        lambda d: mean([float(r.completion_tokens or 0) for r in _counted(d)]),
        "usage missing",
    ),
    Metric(
        "prompt_tokens_mean",
        "tokens",
        "neither",
        lambda d: mean([float(r.prompt_tokens) for r in successful(d) if r.prompt_tokens]),
        "usage missing",
    ),
    Metric("truncated_share", "share", "neither", truncated_share, _NO_GOOD),
    Metric("pass_at_1", "share", "higher", pass_at_1, "not scored (--score)"),
    Metric("requests", "count", "neither", lambda d: float(len(d.records)), ""),
    Metric("conversations", "count", "neither", lambda d: float(len(by_conversation(d))), ""),
    Metric(
        "failed_requests", "count", "lower", lambda d: float(sum(not r.ok for r in d.records)), ""
    ),
)
BY_NAME: dict[str, Metric] = {m.name: m for m in METRICS}
