"""Whether a cell's numbers may be quoted: one function per rule, each with its remedy.

docs/validity.md says why each rule stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peagle_bench.analysis import metrics
from peagle_bench.analysis.stats import FEWEST
from peagle_bench.analysis.steptime import verified
from peagle_bench.core.record import CellData
from peagle_bench.core.result import Finding, Verdict

MAX_LAG_NS = 1_000_000
MAX_CPU_SHARE = 0.8
MAX_MERGED_SHARE = 0.01
MAX_TURNAROUND_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Terms:
    """What was promised of the cell."""

    served_name: str
    trained_depth: int | None = None
    """Largest K the head was trained with; None: not known."""
    estimate: str | None = None
    """Why the cell can only be an estimate; None: it measures a real server."""
    counters_expected: bool = True
    """The server has /metrics."""
    stamps: tuple[Finding, ...] = ()
    """What must be said of the suite wherever its numbers stand."""
    rendering: str | None = None
    """How the server's rendering of a prompt differs from the tokenizer's; None: it does not."""


Rule = Callable[[CellData, Terms], Iterator[Finding]]


def verdict(data: CellData, terms: Terms) -> Verdict:
    """INVALID if any reason stands, else ESTIMATE where that was agreed, else VALID."""
    reasons = [f for rule in REASONS for f in rule(data, terms)]
    flags = tuple(f for rule in FLAGS for f in rule(data, terms))
    if reasons:
        return Verdict(standing="INVALID", reasons=tuple(reasons), flags=flags)
    if terms.estimate is not None:
        why = Finding(code="estimate", text=terms.estimate)
        return Verdict(standing="ESTIMATE", reasons=(why,), flags=flags)
    return Verdict(standing="VALID", flags=flags)


def failed_requests(data: CellData, terms: Terms) -> Iterator[Finding]:
    bad = [r for r in data.records if not r.ok]
    if bad:
        yield Finding(
            code="failed-requests",
            text=f"{len(bad)} of {len(data.records)} requests failed; the first: {bad[0].error}",
            remedy="see servers/…/server.log; raise --request-timeout if it was a time-out",
        )


def usage_told(data: CellData, terms: Terms) -> Iterator[Finding]:
    silent = [r for r in metrics.successful(data) if r.completion_tokens is None]
    if silent:
        yield Finding(
            code="usage-missing",
            text=f"{len(silent)} responses carried no usage: their tokens are not known",
            remedy="the server must support stream_options.include_usage",
        )


def usage_against_ids(data: CellData, terms: Terms) -> Iterator[Finding]:
    for r in metrics.successful(data):
        if r.num_token_ids is not None and r.completion_tokens not in (None, r.num_token_ids):
            yield Finding(
                code="usage-disagrees",
                text=f"{r.prompt_id}: usage says {r.completion_tokens} tokens, "
                f"{r.num_token_ids} token ids arrived",
            )
            return


def counters_sound(data: CellData, terms: Terms) -> Iterator[Finding]:
    for problem in data.delta.problems:
        yield Finding(code="counters", text=problem, remedy="run the cell again")
    if terms.counters_expected and data.delta.generation_tokens is None:
        yield Finding(code="counters", text="the server's /metrics lacks vllm:generation_tokens")


def identity_of_acceptance(data: CellData, terms: Terms) -> Iterator[Finding]:
    length, shares = metrics.acceptance_length(data), metrics.acceptance_by_position(data)
    if length is None:
        if data.depth is not None and terms.counters_expected:
            yield Finding(
                code="no-drafts",
                text="the server was started to speculate and counted no draft",
                remedy="see servers/…/server.log",
            )
        return
    if shares is not None and abs(length - 1 - sum(shares)) > 1e-9 * length:
        yield Finding(
            code="identity",
            text=f"acceptance length {length:.6f} is not 1 + Σ by position {1 + sum(shares):.6f}",
        )
    if data.depth is not None and not 1 <= length <= data.depth + 1:
        yield Finding(
            code="identity", text=f"acceptance length {length:.3f} lies outside [1, K + 1]"
        )


def requests_against_counters(data: CellData, terms: Terms) -> Iterator[Finding]:
    """Sums over requests against counter deltas: other traffic, or records that are wrong."""
    good = metrics.successful(data)
    if len(good) < len(data.records):
        return  # a failed request's share of the counters is not known; it is INVALID anyway
    pairs: list[tuple[str, float | None, float | None]] = []
    if all(r.completion_tokens is not None for r in good):
        told = float(sum(r.completion_tokens or 0 for r in good))
        pairs.append(("generated tokens", told, data.delta.generation_tokens))
    if good and all(r.spec is not None for r in good):
        specs = [r.spec for r in good if r.spec is not None]
        pairs += [
            ("drafts", float(sum(s.num_drafts for s in specs)), data.delta.num_drafts),
            (
                "drafted tokens",
                float(sum(s.num_draft_tokens for s in specs)),
                data.delta.num_draft_tokens,
            ),
            (
                "accepted tokens",
                float(sum(s.num_accepted_tokens for s in specs)),
                data.delta.num_accepted_tokens,
            ),
        ]
    for what, of_requests, of_server in pairs:
        if of_server is not None and of_requests != of_server:
            yield Finding(
                code="other-traffic",
                text=f"{what}: {of_requests:g} over our requests, {of_server:g} by the counters",
                remedy="is something else using the server?",
            )


def probe_against_counters(data: CellData, terms: Terms) -> Iterator[Finding]:
    """Drafts that the probe saw verified against those that the server counted."""
    counted = data.delta.num_drafts
    if data.steps and counted is not None and verified(data.steps) != counted:
        yield Finding(
            code="probe-disagrees",
            text=f"the probe saw {verified(data.steps)} drafts verified, the counters {counted:g}",
            remedy="--no-probe, and please report it",
        )


def cache_unused(data: CellData, terms: Terms) -> Iterator[Finding]:
    if data.delta.prefix_cache_hits:
        yield Finding(
            code="prefix-cache",
            text=f"{data.delta.prefix_cache_hits:g} prompt tokens came from the prefix cache",
            remedy="start the server with --no-enable-prefix-caching",
        )


def served_model(data: CellData, terms: Terms) -> Iterator[Finding]:
    others = {r.model for r in data.records if r.model and r.model != terms.served_name}
    if others:
        yield Finding(
            code="model",
            text=f"responses name {', '.join(sorted(others))}, asked for {terms.served_name}",
        )


def client_kept_up(data: CellData, terms: Terms) -> Iterator[Finding]:
    client = data.client
    if client.cpu_share > MAX_CPU_SHARE:
        yield Finding(
            code="client-saturated",
            text=f"the load client used {client.cpu_share:.0%} of a core",
            remedy="lower --concurrency or give the client a core of its own",
        )
    if client.clock == "user" and (client.lag_p99_ns or 0) > MAX_LAG_NS:
        yield Finding(
            code="client-saturated",
            text=f"chunks were stamped {(client.lag_p99_ns or 0) / 1e6:.1f} ms late at p99",
            remedy="give the client a core of its own",
        )
    if abs(client.clock_drift_ns) > MAX_LAG_NS:
        yield Finding(
            code="clock",
            text=f"the wall clock was set by {client.clock_drift_ns / 1e6:+.1f} ms during the cell",
            remedy="run the cell again",
        )
    wanted = min(data.concurrency, len(metrics.by_conversation(data)))
    if client.peak_in_flight < wanted:
        yield Finding(
            code="concurrency",
            text=f"at most {client.peak_in_flight} of {wanted} requests were in flight",
        )


def stamped(data: CellData, terms: Terms) -> Iterator[Finding]:
    yield from terms.stamps


def rendered_alike(data: CellData, terms: Terms) -> Iterator[Finding]:
    if terms.rendering is not None:
        yield Finding(code="rendering-differs", text=terms.rendering)


def depth_trained(data: CellData, terms: Terms) -> Iterator[Finding]:
    depth, trained = data.depth, terms.trained_depth
    if depth is not None and trained is not None and depth > trained:
        yield Finding(
            code="untrained-depth",
            text=f"K={depth} is above the {trained} the head was trained with",
            remedy=f"--depths up to {trained}",
        )


def reads_apart(data: CellData, terms: Terms) -> Iterator[Finding]:
    client = data.client
    if client.reads and client.merged_reads / client.reads > MAX_MERGED_SHARE:
        yield Finding(
            code="merged-reads",
            text=f"{client.merged_reads / client.reads:.1%} of reads held several chunks: "
            "chunk gaps are coarser than steps",
        )


def chunks_are_steps(data: CellData, terms: Terms) -> Iterator[Finding]:
    most = max((n for r in metrics.successful(data) for n in r.chunk_tokens), default=0)
    if most > (data.depth or 0) + 1:
        yield Finding(
            code="chunks-hold-steps",
            text=f"a chunk held {most} tokens, more than a step's {(data.depth or 0) + 1}: chunk "
            "gaps are not step times, and a first token is seen late",
            remedy="stream interval 1, and a client that keeps up",
        )


def client_lag(data: CellData, terms: Terms) -> Iterator[Finding]:
    client = data.client
    late, records = client.turnaround_p99_ns, metrics.successful(data)
    if late is None or not records:
        return
    typical = sum(r.end_ns - r.sent_ns for r in records) / len(records)
    if late > MAX_TURNAROUND_SHARE * typical:
        yield Finding(
            code="turnaround",
            text=f"a free place waited {late / 1e6:.1f} ms (p99) for its next request: "
            "OTPS is understated by up to that share of a request",
        )


def preempted(data: CellData, terms: Terms) -> Iterator[Finding]:
    if data.delta.num_preemptions:
        yield Finding(
            code="preemptions",
            text=f"the server preempted {data.delta.num_preemptions:g} requests",
            remedy="more KV cache, or a lower --concurrency",
        )


def looping(data: CellData, terms: Terms) -> Iterator[Finding]:
    told = [r.ends_in_loop for r in metrics.successful(data) if r.ends_in_loop is not None]
    loops = sum(told)
    if loops:
        yield Finding(
            code="loops",
            text=f"{loops} of {len(told)} outputs end in a loop: such text is easy to draft and "
            "raises acceptance",
        )


def few_requests(data: CellData, terms: Terms) -> Iterator[Finding]:
    count = len(metrics.successful(data))
    if count < FEWEST[0.9]:
        yield Finding(
            code="few-requests",
            text=f"{count} requests: no tail percentile is given (p90 needs {FEWEST[0.9]})",
            remedy="raise --limit",
        )


REASONS: tuple[Rule, ...] = (
    failed_requests,
    usage_told,
    usage_against_ids,
    counters_sound,
    identity_of_acceptance,
    requests_against_counters,
    probe_against_counters,
    cache_unused,
    served_model,
    client_kept_up,
)
FLAGS: tuple[Rule, ...] = (
    stamped,
    rendered_alike,
    depth_trained,
    reads_apart,
    chunks_are_steps,
    client_lag,
    preempted,
    looping,
    few_requests,
)
