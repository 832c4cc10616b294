"""C requests in flight while work remains.

The garbage collector is frozen while a cell is driven, every connection is open before the clock
starts, and a place whose response ended sends the next request at once. A conversation holds its
place until its last turn has ended; only where the model's own reply goes into the next turn is a
response decoded before the cell is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peagle_bench.core.record import ClientStats, RequestRecord
from peagle_bench.core.suite import Prompt
from peagle_bench.load.client import LoadRequest, decode
from peagle_bench.load.transport import (
    Connection,
    Endpoint,
    Exchange,
    connect,
    wall_minus_mono_ns,
)

_TOKEN_IDS = re.compile(rb'"token_ids":\s*\[([^\]]+)\]')


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds a request may wait before it counts as failed."""

    first_byte_s: float = 600.0
    idle_s: float = 120.0
    give_up_after: int = 3
    """Failures in a row, times C, after which the rest is not sent: a server that hangs would
    otherwise cost a time-out for every request. Answers with an HTTP error do not count."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a live view may show while a cell is driven."""

    finished: int
    failed: int
    total: int
    in_flight: int
    tok_per_s: float | None
    """Tokens that arrived since the last report, per second; None when none was counted."""


ProgressSink = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Driven:
    """A cell as it was driven: a record per turn, prompts in the order they were given."""

    records: tuple[RequestRecord, ...]
    client: ClientStats
    start_ns: int
    """CLOCK_MONOTONIC when the cell began: what every time in the records counts from."""
    end_ns: int


class _Drive:
    """The state that the C places share."""

    def __init__(self, endpoint: Endpoint, requests: list[LoadRequest], most_failures: int) -> None:
        self.endpoint, self.requests = endpoint, requests
        self.payloads = [[endpoint.post(r.path, b) for b in r.known_bodies()] for r in requests]
        """Of the turns whose bodies are known before the cell, by request."""
        self.total = sum(r.num_turns for r in requests)
        self.queue: Iterator[int] = iter(range(len(requests)))
        self.done: list[list[tuple[int, Exchange]]] = [[] for _ in requests]
        """(scheduled ns, exchange) of each turn, by request"""
        self.open: set[Connection] = set()
        self.in_flight = self.peak = self.finished = self.failed = 0
        self.most_failures, self.failed_in_a_row = most_failures, 0
        self.turnarounds_ns: list[int] = []
        self.ended: list[Exchange] = []
        """Exchanges that ended since the last progress report; kept only for one."""
        self.reporting = False

    async def connect(self) -> Connection:
        connection = await connect(self.endpoint)
        self.open.add(connection)
        return connection

    def drop(self, connection: Connection) -> None:
        self.open.discard(connection)
        connection.close()

    async def place(self, connection: Connection) -> None:
        """One of the C: conversation after conversation until none is left."""
        freed_ns: int | None = None
        for index in self.queue:
            request, done = self.requests[index], self.done[index]
            replies: list[str] = []
            unsent: str | None = None
            for turn in range(request.num_turns):
                if unsent is None and self.failed_in_a_row >= self.most_failures:
                    unsent = f"not sent: {self.failed_in_a_row} requests in a row had failed"
                if unsent is not None:
                    now = time.monotonic_ns()
                    done.append((now, Exchange(now, now, error=unsent)))
                    continue
                known = self.payloads[index]
                if turn < len(known):
                    payload = known[turn]
                else:
                    payload = self.endpoint.post(request.path, request.body(replies))
                scheduled_ns = freed_ns or time.monotonic_ns()
                if freed_ns is not None:
                    self.turnarounds_ns.append(time.monotonic_ns() - freed_ns)
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                try:
                    connection, exchange = await self._exchange(connection, payload)
                finally:
                    self.in_flight -= 1
                freed_ns = exchange.end_ns
                done.append((scheduled_ns, exchange))
                self._count(exchange)
                error = exchange.error
                if error is None and len(known) <= turn + 1 < request.num_turns:
                    reply = reply_of(exchange, request.prompt)
                    error = reply.error
                    replies.append(reply.text)
                if error is not None:
                    unsent = f"not sent: turn {turn + 1} of this conversation had failed"
        self.drop(connection)

    def _count(self, exchange: Exchange) -> None:
        self.finished += 1
        self.failed += exchange.error is not None
        self.failed_in_a_row = 0 if exchange.error is None else self.failed_in_a_row + 1
        if self.reporting:
            self.ended.append(exchange)

    async def _exchange(
        self, connection: Connection, payload: bytes
    ) -> tuple[Connection, Exchange]:
        """One request, on this connection or, where that is spent, on a fresh one."""
        while True:
            if not connection.reusable:
                self.drop(connection)
                try:
                    connection = await self.connect()
                except (OSError, TimeoutError) as error:
                    await asyncio.sleep(0.05)  # a dead server must not make a busy loop
                    now = time.monotonic_ns()
                    why = f"cannot connect: {error or 'timed out'}"
                    return connection, Exchange(now, now, error=why)
            kept_alive = connection.served > 0
            exchange = await connection.exchange(payload)
            if kept_alive and not exchange.reads and not exchange.timed_out:
                continue  # closed while idle, before this request: once more on a fresh one
            return connection, exchange

    async def watch(self, limits: Limits) -> None:
        """Ends exchanges that wait too long."""
        first, idle = int(limits.first_byte_s * 1e9), int(limits.idle_s * 1e9)
        while True:
            await asyncio.sleep(0.25)
            now = time.monotonic_ns()
            for connection in list(self.open):
                why = connection.overdue(now, first, idle)
                if why:
                    connection.time_out(why)

    async def report(self, sink: ProgressSink) -> None:
        """Tells the sink about once a second; looks only at what arrived since."""
        seen: dict[int, int] = {}
        """reads counted already, by identity of an exchange that goes on"""
        last_ns = time.monotonic_ns()
        while True:
            await asyncio.sleep(1.0)
            tokens, told = 0, False
            ended, self.ended = self.ended, []
            current = [c.current for c in self.open if c.current is not None]
            for exchange in ended + current:
                reads = exchange.reads
                for _, _, data in reads[seen.pop(id(exchange), 0) :]:
                    for ids in _TOKEN_IDS.findall(data):
                        tokens, told = tokens + ids.count(b",") + 1, True
            seen = {id(e): len(e.reads) for e in current}
            now = time.monotonic_ns()
            rate = tokens / ((now - last_ns) / 1e9) if told else None
            last_ns = now
            sink(Progress(self.finished, self.failed, self.total, self.in_flight, rate))


async def drive(
    endpoint: Endpoint,
    requests: list[LoadRequest],
    concurrency: int,
    limits: Limits,
    on_progress: ProgressSink | None = None,
) -> Driven:
    """Hold every conversation, exactly `concurrency` at a time while enough are left.

    Raises OSError or TimeoutError only when the first connections cannot be opened; after that a
    failure is a record.
    """
    state = _Drive(endpoint, requests, limits.give_up_after * max(2, concurrency))
    places = min(concurrency, len(requests))
    connections = await asyncio.gather(*(state.connect() for _ in range(places)))
    helpers = [asyncio.create_task(state.watch(limits))]
    if on_progress is not None:
        state.reporting = True
        helpers.append(asyncio.create_task(state.report(on_progress)))
    offset_ns = wall_minus_mono_ns()
    cpu_s, origin_ns = _cpu_s(), time.monotonic_ns()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(state.place(connection))
    finally:
        gc.enable()
        gc.unfreeze()
        for helper in helpers:
            helper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*helpers, return_exceptions=True)
        for connection in list(state.open):
            state.drop(connection)
    ended_ns = time.monotonic_ns()
    wall_s = (ended_ns - origin_ns) / 1e9
    cpu_share = (_cpu_s() - cpu_s) / wall_s if wall_s else 0.0
    drift_ns = wall_minus_mono_ns() - offset_ns
    records: list[RequestRecord] = []
    for request, done in zip(requests, state.done, strict=True):
        for turn, (scheduled_ns, exchange) in enumerate(done, 1):
            records.append(
                decode(
                    exchange,
                    index=len(records),
                    prompt=request.prompt,
                    turn=turn,
                    scheduled_ns=scheduled_ns,
                    origin_ns=origin_ns,
                    wall_minus_mono_ns=offset_ns,
                )
            )
    exchanges = [exchange for done in state.done for _, exchange in done]
    stats = _client_stats(state, exchanges, records, offset_ns, drift_ns, cpu_share)
    return Driven(tuple(records), stats, origin_ns, ended_ns)


def reply_of(exchange: Exchange, prompt: Prompt) -> RequestRecord:
    """What the model said, while the cell goes on: the times in this record mean nothing."""
    return decode(exchange, index=0, prompt=prompt, scheduled_ns=0, origin_ns=0,
                  wall_minus_mono_ns=0)  # fmt: skip


def _client_stats(
    state: _Drive,
    exchanges: list[Exchange],
    records: list[RequestRecord],
    offset_ns: int,
    drift_ns: int,
    cpu_share: float,
) -> ClientStats:
    lags: list[int] = []
    for exchange in exchanges:
        stamps = exchange.stamps(offset_ns)
        lags += [
            read_ns - at
            for at, (timespec, read_ns, _) in zip(stamps, exchange.reads, strict=True)
            if timespec
        ]
    return ClientStats(
        clock="kernel" if lags else "user",
        clock_drift_ns=drift_ns,
        lag_p50_ns=_percentile(lags, 0.5),
        lag_p99_ns=_percentile(lags, 0.99),
        turnaround_p99_ns=_percentile(state.turnarounds_ns, 0.99),
        cpu_share=cpu_share,
        peak_in_flight=state.peak,
        reads=sum(r.reads for r in records),
        merged_reads=sum(r.merged_reads for r in records),
    )


def _percentile(values: list[int], share: float) -> int | None:
    """Nearest rank; None for nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
