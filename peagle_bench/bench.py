"""A ready server and its cells: check, warm up, snapshot, drive, snapshot, judge, store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx

from peagle_bench import conversations, rendering
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.validity import Terms
from peagle_bench.conversations import Conversations
from peagle_bench.core.plan import Cell, ServerGroup
from peagle_bench.core.record import CellData, CounterSnapshot, RequestRecord
from peagle_bench.core.result import CellResult
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import CellFailed, ServerDied
from peagle_bench.load import counters
from peagle_bench.load.client import Asking, LoadRequest
from peagle_bench.load.driver import Driven, Limits, ProgressSink, drive
from peagle_bench.load.transport import Endpoint
from peagle_bench.planning import Prepared, sampling_of
from peagle_bench.probe.reading import Probed, steps_between
from peagle_bench.rendering import Rendering
from peagle_bench.store import RunFolder
from peagle_bench.targets.process import Server

WARMUP_TOKENS = 32
SETTLE_S = 3.0
# Errors of a record that carry words of the server, and the one message that is ours to keep.
_FOREIGN = re.compile(r"(HTTP \d+|server error in the stream|unreadable event|not HTTP): ")
_LENGTH = re.compile(r"maximum context length is \d+ tokens")


class Bench:
    """A ready server and its cells."""

    def __init__(
        self,
        prepared: Prepared,
        folder: RunFolder,
        group: ServerGroup,
        server: Server,
        row: dict[str, Any],
        replays: Mapping[str, Conversations],
        progress: ProgressSink,
    ) -> None:
        """row: what command.json says of the server. replays: by suite, where replies lie."""
        self._prepared, self._folder = prepared, folder
        self._group, self._server = group, server
        self._row, self._replays, self._progress = row, replays, progress
        self._renderings: dict[str, Rendering] = {}

    def measure(self, cell: Cell) -> CellResult:
        """Check, warm up, snapshot, drive, snapshot, judge, store.

        Raises ServerError for a cell without numbers: it is not stored.
        """
        prepared, server = self._prepared, self._server
        config = prepared.plan.config
        chosen = prepared.selections[cell.suite]
        metrics_url = f"{server.spec.base_url}/metrics"
        rendering = self._rendering(cell)
        warm = [chosen.prompts[i % len(chosen.prompts)] for i in range(config.warmup)]
        if warm:
            tokens = min(cell.max_tokens, WARMUP_TOKENS)
            self._drive(cell, self._requests(cell, [p.first_turn for p in warm], tokens))
            server.check_alive()
        replays = self._replays.get(cell.suite)
        replies = None if replays is None else replays.read(chosen.prompts)
        before = _settled(metrics_url, None, 0)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        load = self._requests(cell, chosen.prompts, cell.max_tokens, replies)
        driven = self._drive(cell, load, self._progress)
        if not all(r.ok for r in driven.records):
            server.check_alive()  # a server that died takes the cell with it
        if not any(r.ok for r in driven.records):
            first = driven.records[0].error
            raise CellFailed(f"{cell.label}: every request failed; the first: {first}")
        after = _settled(metrics_url, before, len(driven.records))
        probed = self._probed(driven)
        driven = self._scored(cell, driven)
        data = CellData(
            records=driven.records,
            delta=counters.subtract(before, after),
            client=driven.client,
            concurrency=cell.concurrency,
            depth=cell.group.depth,
            warmup_requests=len(warm),
            steps=probed.steps,
        )
        facts = {
            "started": started,
            "start_ns": driven.start_ns,
            "prompts_digest": chosen.digest,
            "vllm": (self._row.get("facts") or {}).get("version"),
            "server_start_s": self._row.get("start_s"),
            "rendering": rendering.told,
            "rendering_differs": rendering.differs,
            "probe": probed.unavailable or f"{len(probed.steps)} steps",
        }
        if replays is not None:
            said = replies or conversations.spoken(chosen.prompts, driven.records)
            facts["conversation"] = "replayed" if replies is not None else "spoken"
            if said is not None:
                if replies is None:
                    replays.write(said)
                facts["replies_digest"] = conversations.digest_of(said)
        result = summarise(cell, data, terms_of(prepared, cell, rendering), facts)
        self._folder.write_cell(
            result,
            data,
            before,
            after,
            keep_text=config.keep_text,
            keep_ids=config.keep_text or chosen.suite.public,
        )
        return result

    def _probed(self, driven: Driven) -> Probed:
        """The server's steps while the cell was driven."""
        if not self._prepared.probes:
            calibrated = self._prepared.calibrated
            why = "the calibration server has none" if calibrated else "--no-probe was given"
            return Probed(unavailable=why)
        return steps_between(self._folder.probe_dir(self._group), driven.start_ns, driven.end_ns)

    def _scored(self, cell: Cell, driven: Driven) -> Driven:
        """The records with what became of the programs in their replies, now that nothing is
        timed."""
        sandbox = self._prepared.sandbox
        scorer = self._prepared.selections[cell.suite].suite.scorer
        if sandbox is None or scorer is None:
            return driven
        from peagle_bench.scoring import humaneval

        good = [r for r in driven.records if r.ok]
        samples = [
            # An oversampled copy is called `HumanEval/0#2`.
            humaneval.Sample(r.prompt_id.partition("#")[0], r.text, r.finish_reason, r.reasoning)
            for r in good
        ]
        workers = max(1, (os.cpu_count() or 1) // 2)
        results = humaneval.score(samples, sandbox, workers=workers).results
        told = {r.index: s.outcome for r, s in zip(good, results, strict=True)}
        records = tuple(replace(r, score=told.get(r.index)) for r in driven.records)
        return replace(driven, records=records)

    def _rendering(self, cell: Cell) -> Rendering:
        """The suite's first prompt as this server renders it, once for each suite and server.

        Raises CellFailed for a chat template or a BOS token applied twice.
        """
        found = self._renderings.get(cell.suite)
        if found is None:
            first = self._prepared.selections[cell.suite].prompts[0].first_turn
            (record,) = self._drive(cell, self._requests(cell, [first], 1)).records
            self._server.check_alive()
            if record.error is not None:
                found = Rendering(f"not compared: {record.error}")
            else:
                found = rendering.compare(first, record, self._prepared.tokenizer)
            self._renderings[cell.suite] = found
        if found.error is not None:
            raise CellFailed(f"{cell.label}: {found.error}")
        return found

    def _requests(
        self,
        cell: Cell,
        prompts: Sequence[Prompt],
        max_tokens: int,
        replies: conversations.Replies | None = None,
    ) -> list[LoadRequest]:
        prepared = self._prepared
        suite = prepared.selections[cell.suite].suite
        asking = Asking(
            model=prepared.profile.target.served_name,
            sampling=sampling_of(suite, prepared.plan.config),
            max_tokens=max_tokens,
        )
        return [
            LoadRequest(p, asking, None if replies is None else replies[p.prompt_id])
            for p in prompts
        ]

    def _drive(
        self, cell: Cell, load: list[LoadRequest], sink: ProgressSink | None = None
    ) -> Driven:
        config, server = self._prepared.plan.config, self._server
        limits = Limits(config.request_timeout_s, config.idle_timeout_s)
        base_url = server.spec.base_url
        try:
            driven = _run_loop(Endpoint(base_url), load, cell.concurrency, limits, sink)
        except (OSError, TimeoutError) as error:
            server.check_alive()
            raise ServerDied(f"{cell.label}: cannot connect to {base_url}: {error}") from error
        if config.keep_text or self._prepared.selections[cell.suite].suite.public:
            return driven
        return replace(driven, records=private(driven.records))


def private(records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The records without the server's own words in their errors: they may quote a prompt."""
    return tuple(
        r if r.error is None else replace(r, error=_without_quotes(r.error)) for r in records
    )


def _without_quotes(error: str) -> str:
    """What happened, as far as it is told in words of ours."""
    kind = _FOREIGN.match(error)
    if kind is None:
        return error
    length = _LENGTH.search(error)
    said = length[0] if length else "what it says may quote the prompt; --keep-text keeps it"
    return f"{kind[1]} ({said})"


def terms_of(prepared: Prepared, cell: Cell, rendering: Rendering) -> Terms:
    """What was promised of the cell, and what must be said of it."""
    head = prepared.heads.get(cell.group.method)
    return Terms(
        served_name=prepared.profile.target.served_name,
        trained_depth=head.trained_depth if head else None,
        estimate=prepared.estimate,
        stamps=prepared.selections[cell.suite].stamps,
        rendering=rendering.told if rendering.differs else None,
    )


def _run_loop(
    endpoint: Endpoint,
    load: list[LoadRequest],
    concurrency: int,
    limits: Limits,
    sink: ProgressSink | None,
) -> Driven:
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(drive(endpoint, load, concurrency, limits, sink))


def _settled(url: str, before: CounterSnapshot | None, finished: int) -> CounterSnapshot:
    """The counters once the server has counted our last request.

    A server counts a request after its last byte has left, so the first look may be early: wait
    until `finished` more requests are counted (or, without `before`, until two looks agree), at
    most SETTLE_S. An unreadable /metrics is an empty snapshot.
    """
    deadline = time.monotonic() + SETTLE_S
    last: CounterSnapshot | None = None
    while True:
        try:
            now = counters.scrape(url)
        except (httpx.HTTPError, ValueError):
            return CounterSnapshot()
        if before is not None and now.requests_finished is not None:
            done = now.requests_finished - (before.requests_finished or 0.0) >= finished
        else:
            done = now == last
        if (done and now == last) or time.monotonic() > deadline:
            return now
        last = now
        time.sleep(0.1)
