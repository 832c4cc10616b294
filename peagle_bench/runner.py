"""A plan carried out: start a server, measure its cells, store each, stop it, next.

A server that fails takes its own cells with it and nothing else. What is whole stays whole:
whatever ends the run, only the cell that was being measured is lost.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from peagle_bench import conversations, provenance
from peagle_bench.bench import Bench
from peagle_bench.conversations import Conversations
from peagle_bench.core.plan import Cell, ServerGroup
from peagle_bench.core.result import CellResult
from peagle_bench.errors import CellFailed, ConfigError, ServerError
from peagle_bench.load.driver import Progress
from peagle_bench.planning import Prepared, sampling_of
from peagle_bench.probe.plugin import VARIABLE
from peagle_bench.store import RunFolder
from peagle_bench.targets import calibration, embedded, vllm
from peagle_bench.targets.process import Server, ServerSpec, end_orphans


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
    kept -= _spoken_elsewhere(prepared, kept, replays, folder, listener)
    if kept:
        listener.note(f"{len(kept)} of {len(plan.cells)} cells are whole already and kept")
    measured = tried = len(kept)
    todo = [g for g in plan.groups if any(c.cell_id not in kept for c in plan.cells_of(g))]
    for at, group in enumerate(todo, 1):
        cells = [c for c in plan.cells_of(group) if c.cell_id not in kept]
        listener.server_starting(group, at, len(todo))
        measured += _serve(prepared, folder, listener, group, cells, model, replays, tried)
        tried += len(cells)
    if measured == len(plan.cells):
        for held in replays.values():
            held.forget()
    return Outcome(measured=measured, failed=len(plan.cells) - measured)


def _serve(
    prepared: Prepared,
    folder: RunFolder,
    listener: Listener,
    group: ServerGroup,
    cells: Sequence[Cell],
    model: str,
    replays: Mapping[str, Conversations],
    tried: int,
) -> int:
    """Start one server, measure its cells, stop it; how many have numbers.

    tried: cells that were whole or tried before. What fails is written down and shown, not raised.
    """
    folder.clear_failure(group)
    spec = _server_spec(prepared, group, model)
    log = folder.server_dir(group) / "server.log"
    probe = folder.probe_dir(group)
    shutil.rmtree(probe, ignore_errors=True)
    watched = replace(spec, env={**spec.env, VARIABLE: str(probe)}) if prepared.probes else spec
    server = Server(watched, log)
    row: dict[str, Any] = {
        "command": shlex.join(spec.command),
        "env": dict(spec.env),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    folder.write_server(group, row)
    measured, lost = 0, []
    before_prompts: int | None = None
    try:
        server.start()
        server.wait_ready(prepared.plan.config.ready_timeout_s, listener.server_waiting)
        row["start_s"] = server.ready_s
        row["facts"] = {} if prepared.calibrated else vllm.server_facts(spec.base_url)
        folder.write_server(group, row)
        listener.server_ready(group, server.ready_s or 0.0)
        before_prompts = log.stat().st_size
        bench = Bench(prepared, folder, group, server, row, replays, listener.progress)
        for number, cell in enumerate(cells, tried + 1):
            listener.cell_starting(cell, number, len(prepared.plan.cells))
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
        why = str(error)
        if before_prompts is not None and prepared.private:
            why = why.splitlines()[0]  # the log's tail may quote a prompt
        folder.write_failure(group, why)
        listener.failed(group.label, why)
    finally:
        with _uninterrupted():
            server.stop()
            shutil.rmtree(probe, ignore_errors=True)  # every cell has its own steps
            if before_prompts is not None and prepared.private:
                _forget_after(log, before_prompts)
    return measured


def _forget_after(log: Path, size: int) -> None:
    """Cut a server's log off where prompts began: what a server says of one may quote it."""
    with log.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"[what followed may quote prompts and is not kept; --keep-text keeps it]\n")


def _replays(prepared: Prepared, folder: RunFolder) -> dict[str, Conversations]:
    """Where the replies of each suite lie whose conversations are spoken once and replayed."""
    config = prepared.plan.config
    return {
        name: Conversations(folder, name, private=not (chosen.suite.public or config.keep_text))
        for name, chosen in prepared.selections.items()
        if chosen.multi_turn and config.replay_turns
    }


def _spoken_elsewhere(
    prepared: Prepared,
    kept: set[str],
    replays: Mapping[str, Conversations],
    folder: RunFolder,
    listener: Listener,
) -> set[str]:
    """Whole cells whose replies are gone: what is measured now could not be compared with them."""
    lost: set[str] = set()
    for name, held in replays.items():
        now = held.read(prepared.selections[name].prompts)
        digest = None if now is None else conversations.digest_of(now)
        cells = [c for c in prepared.plan.cells if c.suite == name]
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
        _refuse_other_prompts(prepared, folder, first["suites"])
        session = {
            "started": facts["started"],
            "argv": facts["argv"],
            "commit": facts["software"]["commit"],
        }
        kept = ("started", "argv", "machine", "software", "run_id")
        facts |= {name: first[name] for name in kept}
        facts["sessions"] = [*first.get("sessions", []), session]
    folder.write_manifest(prepared.plan, facts)
    if prepared.plan.config.keep_text:
        for name, chosen in prepared.selections.items():
            folder.write_prompts(name, chosen.prompts)


def _refuse_other_prompts(prepared: Prepared, folder: RunFolder, before: Mapping[str, Any]) -> None:
    """Raises ConfigError where whole cells are of prompts that the suite no longer has."""
    whole = [c for c in folder.plan().cells if folder.has_cell(c)]
    for name, chosen in prepared.selections.items():
        digest = before.get(name, {}).get("digest", chosen.digest)
        cells = sum(c.suite == name for c in whole)
        if digest != chosen.digest and cells:
            raise ConfigError(
                f"the prompts of {name} are not those that {folder.path} was begun with (digest "
                f"{digest[:12]}, now {chosen.digest[:12]}): its {cells} whole cells cannot stand "
                "beside new ones. Start a new run with another --out"
            )


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
            "temperature": sampling_of(chosen.suite, prepared.plan.config).temperature,
            "digest": chosen.digest,
            "stamps": [s.model_dump(mode="json") for s in chosen.stamps],
            "facts": chosen.facts,
        }
        for name, chosen in prepared.selections.items()
    }
    return facts
