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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx

from peagle_bench import conversations, provenance, rendering
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.validity import Terms
from peagle_bench.conversations import Conversations
from peagle_bench.core.plan import Cell, Plan, ServerGroup
from peagle_bench.core.record import CellData, CounterSnapshot, RequestRecord
from peagle_bench.core.result import CellResult
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import CellFailed, ConfigError, ServerDied, ServerError
from peagle_bench.load import counters
from peagle_bench.load.client import Asking, LoadRequest
from peagle_bench.load.driver import Driven, Limits, Progress, ProgressSink, drive
from peagle_bench.load.transport import Endpoint
from peagle_bench.planning import Prepared, sampling_of
from peagle_bench.rendering import Rendering
from peagle_bench.store import RunFolder
from peagle_bench.targets import calibration, embedded, vllm
from peagle_bench.targets.process import Server, ServerSpec, end_orphans

WARMUP_TOKENS = 32
SETTLE_S = 3.0
QUOTED = 16
"""Characters of a prompt in a row that an error message must not carry into a private run."""


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
    replays = _replays(prepared, folder)
    kept = {c.cell_id for c in plan.cells if folder.is_whole(c)}
    for cell in plan.cells:
        if folder.has_cell(cell) and cell.cell_id not in kept:
            listener.note(f"{cell.label}: its records cannot be read; measuring it again")
    kept -= _spoken_elsewhere(plan, kept, replays, folder, listener)
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
            bench = _Bench(prepared, folder, listener, server, row, replays)
            lost: list[str] = []
            for cell in cells:
                number += 1
                listener.cell_starting(cell, len(kept) + number, len(plan.cells))
                try:
                    result = bench.measure(cell)
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
    if measured == len(plan.cells):
        for held in replays.values():
            held.forget()
    return Outcome(measured=measured, failed=len(plan.cells) - measured)


def _replays(prepared: Prepared, folder: RunFolder) -> dict[str, Conversations]:
    """Where the replies of each suite lie whose conversations are spoken once and replayed."""
    config = prepared.plan.config
    return {
        name: Conversations(folder, name, private=not (chosen.suite.public or config.keep_text))
        for name, chosen in prepared.selections.items()
        if chosen.multi_turn and config.replay_turns
    }


def _spoken_elsewhere(
    plan: Plan,
    kept: set[str],
    replays: Mapping[str, Conversations],
    folder: RunFolder,
    listener: Listener,
) -> set[str]:
    """Whole cells whose replies are gone: what is measured now could not be compared with them."""
    lost: set[str] = set()
    for name, held in replays.items():
        now = held.read()
        digest = None if now is None else conversations.digest_of(now)
        cells = [c for c in plan.cells if c.suite == name]
        whole = [c for c in cells if c.cell_id in kept]
        other = [c for c in whole if folder.read_facts(c).get("replies_digest") != digest]
        if other and len(whole) < len(cells):
            listener.note(
                f"{name}: the replies that {len(other)} cells were measured with are gone; "
                "measuring them again"
            )
            lost |= {c.cell_id for c in other}
    return lost


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


class _Bench:
    """A ready server and its cells."""

    def __init__(
        self,
        prepared: Prepared,
        folder: RunFolder,
        listener: Listener,
        server: Server,
        row: dict[str, Any],
        replays: Mapping[str, Conversations],
    ) -> None:
        self._prepared, self._folder, self._listener = prepared, folder, listener
        self._server, self._row, self._replays = server, row, replays
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
        replies = None if replays is None else replays.read()
        before = _settled(metrics_url, None, 0)
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        load = self._requests(cell, chosen.prompts, cell.max_tokens, replies)
        driven = self._drive(cell, load, self._listener.progress)
        if not all(r.ok for r in driven.records):
            server.check_alive()  # a server that died takes the cell with it
        if not any(r.ok for r in driven.records):
            first = driven.records[0].error
            raise CellFailed(f"{cell.label}: every request failed; the first: {first}")
        after = _settled(metrics_url, before, len(driven.records))
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
            "prompts_digest": chosen.digest,
            "vllm": (self._row.get("facts") or {}).get("version"),
            "server_start_s": self._row.get("start_s"),
            "rendering": rendering.told,
            "rendering_differs": rendering.differs,
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
        return Driven(private(driven.records, load), driven.client)


def private(
    records: Sequence[RequestRecord], load: Sequence[LoadRequest]
) -> tuple[RequestRecord, ...]:
    """The records, with what a server's error quotes of a private prompt or reply taken out."""
    prompts = {r.prompt.prompt_id: r for r in load}
    return tuple(
        r if r.error is None else replace(r, error=_scrubbed(r.error, prompts[r.prompt_id]))
        for r in records
    )


def _scrubbed(error: str, request: LoadRequest) -> str:
    """`error` with every run of QUOTED characters or more that the request holds cut out."""
    held = "\n".join([request.prompt.model_dump_json(), *request.prompt.texts()])
    out, at = [], 0
    while at < len(error):
        length = QUOTED
        if error[at : at + length] in held and len(error) - at >= length:
            while at + length < len(error) and error[at : at + length + 1] in held:
                length += 1
            out.append("…")
            at += length
        else:
            out.append(error[at])
            at += 1
    return "".join(out)


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
        kept = ("started", "argv", "machine", "software", "run_id")
        facts |= {name: first[name] for name in kept}
        facts["sessions"] = [*first.get("sessions", []), session]
    folder.write_manifest(prepared.plan, facts)


def manifest_facts(prepared: Prepared) -> dict[str, Any]:
    """Provenance for the manifest."""
    version = prepared.install.version if prepared.install else None
    facts = provenance.collect(version, dict(prepared.weights))
    facts["run_id"] = uuid.uuid4().hex
    facts["profile_chosen"] = prepared.why_profile
    facts["notes"] = list(prepared.notes)
    facts["trained_depths"] = {name: h.trained_depth for name, h in prepared.heads.items()}
    facts["served_name"] = prepared.profile.target.served_name
    facts["estimate"] = prepared.estimate
    facts["suites"] = {
        name: {
            "version": chosen.suite.version,
            "title": chosen.suite.title,
            "source": chosen.suite.source,
            "license": chosen.suite.license,
            "prompts": len(chosen.prompts),
            "requests": chosen.num_requests,
            "digest": chosen.digest,
            "stamps": [s.model_dump(mode="json") for s in chosen.stamps],
            "facts": chosen.facts,
        }
        for name, chosen in prepared.selections.items()
    }
    return facts
