"""Records: what was seen of one request, and of the server's counters around a cell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from peagle_bench.core.step import Step


@dataclass(frozen=True, slots=True)
class SpecMetrics:
    """What the server says of one request's drafts (`metrics.speculative_decoding`)."""

    num_drafts: int
    """Verification steps that had a draft."""
    num_draft_tokens: int
    num_accepted_tokens: int
    histogram: tuple[int, ...] = ()
    """histogram[i]: steps that accepted exactly i drafts; may be empty."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Times are nanoseconds on one monotonic clock, from the cell's start.

    A failed request keeps what was received; `error` says why it failed and then it counts in
    no numerator and no latency.
    """

    index: int
    """Position in the suite's order: prompts in turn, each with its turns."""
    prompt_id: str
    category: str
    scheduled_ns: int
    """When a place among the C was free for it; for a later turn, when the reply before ended."""
    sent_ns: int
    """Just before its first byte left."""
    end_ns: int
    """Last byte's arrival, or the moment it failed."""
    chunk_ns: tuple[int, ...] = ()
    """Arrival of each chunk that carried at least one token, non-decreasing."""
    chunk_tokens: tuple[int, ...] = ()
    """Tokens in each of those chunks, as the server's token ids count them; 0: not told."""
    first_content_ns: int | None = None
    """First chunk with visible content; None for reasoning only."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """From the server's usage; None when it sent none."""
    finish_reason: str | None = None
    model: str | None = None
    status: int | None = None
    """HTTP status; None when no response began."""
    error: str | None = None
    spec: SpecMetrics | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_digest: str | None = None
    """sha256 over the prompt's token ids as the server saw them."""
    text: str = ""
    """Visible content."""
    reasoning: str = ""
    turn: int = 1
    """Counts from 1 within a conversation; a conversation is all records of one prompt_id."""
    output_digest: str | None = None
    """sha256 over the output's token ids, kept where the ids are not; None: none were told."""
    num_token_ids: int | None = None
    """How many token ids arrived, kept where the ids themselves are not; None: none were told."""
    ends_in_loop: bool | None = None
    """The last tokens repeat one period again and again; None: ids were not told."""
    score: str | None = None
    """`passed`, `failed`, `no_code`, `thinking_only`, `infra_error`; None: not scored."""
    merged_reads: int = 0
    """Reads of the socket that held more than one event: all but the last lack their own time."""
    reads: int = 0

    @property
    def ok(self) -> bool:
        return self.error is None


class CounterSnapshot(BaseModel):
    """The server's counters at one moment, summed over engines. None: the series is absent."""

    model_config = ConfigDict(frozen=True)

    num_drafts: float | None = None
    num_draft_tokens: float | None = None
    num_accepted_tokens: float | None = None
    accepted_per_pos: tuple[float, ...] | None = None
    """shape (K,)"""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_cache_hits: float | None = None
    prefix_cache_queries: float | None = None
    num_preemptions: float | None = None
    requests_finished: float | None = None
    engines: tuple[str, ...] = ()
    """Values of the `engine` label seen."""
    models: tuple[str, ...] = ()
    """Values of the `model_name` label seen."""


class CounterDelta(BaseModel):
    """What the counters did during a cell; None where either snapshot lacks the series."""

    model_config = ConfigDict(frozen=True)

    num_drafts: float | None = None
    num_draft_tokens: float | None = None
    num_accepted_tokens: float | None = None
    accepted_per_pos: tuple[float, ...] | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_cache_hits: float | None = None
    num_preemptions: float | None = None
    requests_finished: float | None = None
    problems: tuple[str, ...] = ()
    """Counters that went down, series that changed: the cell cannot be trusted."""


class ClientStats(BaseModel):
    """What the load client did while the cell was driven."""

    model_config = ConfigDict(frozen=True)

    clock: str
    """`kernel` (receive stamps of the socket) or `user` (taken when the bytes were read)."""
    clock_drift_ns: int
    """Change of wall clock minus monotonic clock over the cell; stamps are off by at most this."""
    lag_p50_ns: int | None
    """Arrival at the socket to reading it; None without kernel stamps."""
    lag_p99_ns: int | None
    turnaround_p99_ns: int | None
    """End of one response to the send of the next on the same place."""
    cpu_share: float
    """CPU seconds of this process per second of the cell."""
    peak_in_flight: int
    reads: int
    merged_reads: int


@dataclass(frozen=True, slots=True)
class CellData:
    """Everything stored of one cell: the only input of analysis."""

    records: tuple[RequestRecord, ...]
    delta: CounterDelta
    client: ClientStats
    concurrency: int
    depth: int | None
    """K; None for the baseline."""
    warmup_requests: int = 0
    steps: tuple[Step, ...] = ()
    """What the probe saw inside the server, in order; () without one."""


def digest_of_ids(ids: Sequence[int]) -> str:
    """sha256 over token ids: what a record keeps of a prompt or an output."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
