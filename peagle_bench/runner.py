"""A plan carried out: start a server, measure its cells, store each, stop it, next.

A server that fails takes its own cells with it and nothing else. What is whole stays whole:
whatever ends the run, only the cell that was being measured is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from peagle_bench import provenance
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Cell, ServerGroup
from peagle_bench.core.record import CellData, CounterSnapshot
from peagle_bench.core.result import CellResult
from peagle_bench.core.suite import Prompt, prompts_digest
from peagle_bench.errors import CellFailed, ConfigError, ServerDied, ServerError
from peagle_bench.load import counters
from peagle_bench.load.client import Dialect, LoadRequest, chat_body
from peagle_bench.load.driver import Driven, Limits, Progress, ProgressSink, drive
from peagle_bench.load.transport import Endpoint
from peagle_bench.planning import Prepared, sampling_of
from peagle_bench.store import RunFolder
from peagle_bench.targets import calibration, embedded, vllm
from peagle_bench.targets.process import Server, ServerSpec, end_orphans

WARMUP_TOKENS = 32
SETTLE_S = 3.0


class Listener(Protocol):
    """Whoever shows the run as it goes."""

    def note(self, text: str) -> None: ...

    def server_starting(self, group: ServerGroup, number: int, of: int) -> None: ...

    def server_waiting(self, waited_s: float) -> None: ...

    def server_ready(self, group: ServerGroup, start_s: float) -> None: ...

    def cell_starting(self, cell: Cell, number: int, of: int) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def cell_done(self, result: CellResult) -> None: ...

    def failed(self, what: str, why: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended."""

    measured: int
    """Cells with numbers, those kept by --resume included."""
    failed: int

    @property
    def exit_code(self) -> int:
        """0 all measured, 1 some failed, 3 none measured."""
        if self.measured == 0:
            return 3
        return 1 if self.failed else 0


def carry_out(prepared: Prepared, folder: RunFolder, listener: Listener) -> Outcome:
    """Measure every cell that the folder does not hold yet."""
    for line in end_orphans():
        listener.note(line)
    folder.clear_aside()
    model = _target(prepared, listener)
    plan = prepared.plan
    kept = {c.cell_id for c in plan.cells if folder.is_whole(c)}
    for cell in plan.cells:
        if folder.has_cell(cell) and cell.cell_id not in kept:
            listener.note(f"{cell.label}: its records cannot be read; measuring it again")
    if kept:
        listener.note(f"{len(kept)} of {len(plan.cells)} cells are whole already and kept")
    measured, number = len(kept), 0
    todo = [g for g in plan.groups if any(c.cell_id not in kept for c in plan.cells_of(g))]
    for at, group in enumerate(todo, 1):
        cells = [c for c in plan.cells_of(group) if c.cell_id not in kept]
        folder.clear_failure(group)
        spec = _server_spec(prepared, group, model)
        server = Server(spec, folder.server_dir(group) / "server.log")
        row: dict[str, Any] = {
            "command": shlex.join(spec.command),
            "env": dict(spec.env),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        folder.write_server(group, row)
        listener.server_starting(group, at, len(todo))
        try:
            server.start()
            server.wait_ready(plan.config.ready_timeout_s, listener.server_waiting)
            row["start_s"] = server.ready_s
            row["facts"] = {} if prepared.calibrated else vllm.server_facts(spec.base_url)
            folder.write_server(group, row)
            listener.server_ready(group, server.ready_s or 0.0)
            lost: list[str] = []
            for cell in cells:
                number += 1
                listener.cell_starting(cell, len(kept) + number, len(plan.cells))
                try:
                    result = _measure(prepared, cell, server, row, folder, listener.progress)
                except CellFailed as error:
                    lost.append(str(error))
                    folder.write_failure(group, "\n".join(lost))
                    listener.failed(cell.label, str(error))
                    continue
                measured += 1
                listener.cell_done(result)
        except ServerError as error:
            folder.write_failure(group, str(error))
            listener.failed(group.label, str(error))
        finally:
            with _uninterrupted():
                server.stop()
    return Outcome(measured=measured, failed=len(plan.cells) - measured)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not leave a server behind: signals wait while one is stopped."""
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _target(prepared: Prepared, listener: Listener) -> str:
    """Path or hub id of the target, converting the embedded one on first use."""
    target, config = prepared.profile.target, prepared.plan.config
    if target.kind == "embedded":
        return str(embedded.embedded_target(listener.note, config.target_path))
    return config.target_path or target.model


def _server_spec(prepared: Prepared, group: ServerGroup, model: str) -> ServerSpec:
    if prepared.calibrated:
        return calibration.server_spec(prepared.profile, group, prepared.plan.config)
    return vllm.server_spec(
        prepared.profile,
        group,
        prepared.plan.config,
        model=model,
        head=prepared.heads.get(group.method),
        install=prepared.install,
    )


def _measure(
    prepared: Prepared,
    cell: Cell,
    server: Server,
    row: dict[str, Any],
    folder: RunFolder,
    progress: ProgressSink,
) -> CellResult:
    """Warm up, snapshot, drive, snapshot, judge, store. Raises ServerError for a cell without
    numbers: it is not stored."""
    config, suite = prepared.plan.config, prepared.suites[cell.suite]
    prompts = prepared.prompts[cell.suite]
    base_url = server.spec.base_url
    metrics_url = f"{base_url}/metrics"
    limits = Limits(config.request_timeout_s, config.idle_timeout_s)

    def requests(chosen: Sequence[Prompt], max_tokens: int) -> list[LoadRequest]:
        sampling = sampling_of(suite, config)
        return [
            LoadRequest(
                prompt=p,
                body=chat_body(
                    p,
                    model=prepared.profile.target.served_name,
                    sampling=sampling,
                    max_tokens=max_tokens,
                    dialect=Dialect(),
                ),
            )
            for p in chosen
        ]

    def run(load: list[LoadRequest], sink: ProgressSink | None) -> Driven:
        try:
            return _run_loop(Endpoint(base_url), load, cell.concurrency, limits, sink)
        except (OSError, TimeoutError) as error:
            server.check_alive()
            raise ServerDied(f"{cell.label}: cannot connect to {base_url}: {error}") from error

    warm = [prompts[i % len(prompts)] for i in range(config.warmup)]
    if warm:
        run(requests(warm, min(cell.max_tokens, WARMUP_TOKENS)), None)
        server.check_alive()
    before = _settled(metrics_url, None, 0)
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    load = requests(prompts, cell.max_tokens)
    driven = run(load, progress)
    if not all(r.ok for r in driven.records):
        server.check_alive()  # a server that died takes the cell with it
    if not any(r.ok for r in driven.records):
        first = driven.records[0].error
        raise CellFailed(f"{cell.label}: every request failed; the first: {first}")
    after = _settled(metrics_url, before, len(load))
    data = CellData(
        records=driven.records,
        delta=counters.subtract(before, after),
        client=driven.client,
        concurrency=cell.concurrency,
        depth=cell.group.depth,
        warmup_requests=len(warm),
    )
    facts = {
        "started": started,
        "prompts_digest": prompts_digest(prompts),
        "vllm": (row.get("facts") or {}).get("version"),
        "server_start_s": row.get("start_s"),
    }
    result = summarise(cell, data, terms_of(prepared, cell), facts)
    folder.write_cell(
        result,
        data,
        before,
        after,
        keep_text=config.keep_text,
        keep_ids=config.keep_text or suite.public,
    )
    return result


def terms_of(prepared: Prepared, cell: Cell) -> Terms:
    """What was promised of the cell."""
    head = prepared.heads.get(cell.group.method)
    return Terms(
        served_name=prepared.profile.target.served_name,
        trained_depth=head.trained_depth if head else None,
        estimate=prepared.estimate,
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


def begin(prepared: Prepared, folder: RunFolder) -> None:
    """Write the manifest before anything starts; a run that goes on keeps its provenance.

    Raises ConfigError when the run began on another machine or another vLLM: its cells and the
    new ones could not be compared.
    """
    facts = manifest_facts(prepared)
    if folder.has_manifest:
        first = folder.manifest()["provenance"]
        for what, then, now in (
            ("cpu", first["machine"].get("cpu"), facts["machine"]["cpu"]),
            ("cores", first["machine"].get("cores"), facts["machine"]["cores"]),
            ("GPUs", first["machine"].get("gpus"), facts["machine"]["gpus"]),
            ("vLLM", first["software"].get("vllm"), facts["software"]["vllm"]),
        ):
            if then != now:
                raise ConfigError(
                    f"{folder.path} was begun with {what} {then}, here it is {now}: cells of both "
                    "cannot stand in one table. Start a new run with another --out"
                )
        session = {
            "started": facts["started"],
            "argv": facts["argv"],
            "commit": facts["software"]["commit"],
        }
        kept = ("started", "argv", "machine", "software")
        facts |= {name: first[name] for name in kept}
        facts["sessions"] = [*first.get("sessions", []), session]
    folder.write_manifest(prepared.plan, facts)


def manifest_facts(prepared: Prepared) -> dict[str, Any]:
    """Provenance for the manifest."""
    version = prepared.install.version if prepared.install else None
    facts = provenance.collect(version, dict(prepared.weights))
    facts["profile_chosen"] = prepared.why_profile
    facts["notes"] = list(prepared.notes)
    facts["trained_depths"] = {name: h.trained_depth for name, h in prepared.heads.items()}
    facts["served_name"] = prepared.profile.target.served_name
    facts["estimate"] = prepared.estimate
    facts["suites"] = {
        name: {
            "version": s.version,
            "prompts": len(prepared.prompts[name]),
            "digest": prompts_digest(prepared.prompts[name]),
        }
        for name, s in prepared.suites.items()
    }
    return facts
