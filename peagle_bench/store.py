"""A run on disk. A cell's files are written aside and renamed into place when it is whole.

<run>/manifest.json                     config, plan, provenance: written before anything starts
      cells/<cell>/summary.json         metrics and verdict
                   requests.parquet     one row per request
                   chunks.parquet       one row per chunk with tokens
                   counters.json        snapshots, delta and what the client did
                   probe.parquet        one row per step, where the server could be probed
      servers/<group>/command.json      command, environment laid over ours, what it told
                      server.log
                      failure.json      only when the group could not be served
      conversations/<suite>.json        replies that later cells replay: public suites, or with text
      prompts/<suite>.jsonl             only with --keep-text
      cells.csv  report.md  charts/
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from peagle_bench.core.plan import HARNESS_SCHEMA, Cell, Plan, ServerGroup
from peagle_bench.core.record import (
    CellData,
    ClientStats,
    CounterDelta,
    CounterSnapshot,
    RequestRecord,
    SpecMetrics,
)
from peagle_bench.core.result import CellResult
from peagle_bench.core.step import Step
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import FolderUnusable, NoSuchRun, RunLocked, StoredRunError
from peagle_bench.secrets import masked

_ASIDE = ".aside-"
# What a report cannot do without.
_PROVENANCE = {
    "machine", "software", "started", "argv", "suites", "trained_depths", "served_name",
    "estimate", "profile_chosen",
}  # fmt: skip


class RunFolder:
    """One run's folder: the only module that knows its layout."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """The folder, made and proven writable. Raises FolderUnusable."""
        with _usable(path):
            path.mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.write_bytes(b"x" * 65536)
            probe.unlink()
        return cls(path)

    # manifest

    @property
    def has_manifest(self) -> bool:
        with _usable(self.path):
            return (self.path / "manifest.json").is_file()

    @property
    def is_empty(self) -> bool:
        """Nothing is there, or an empty folder."""
        with _usable(self.path):
            return not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder alone: raises RunLocked while another process does."""
        with _usable(self.path):
            lock = (self.path / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunLocked(f"another peagle-bench is writing to {self.path}") from error
            yield

    def write_manifest(self, plan: Plan, provenance: dict[str, Any]) -> None:
        with _usable(self.path):
            _write_json(
                self.path / "manifest.json",
                {
                    "schema": HARNESS_SCHEMA,
                    "plan_digest": plan.digest,
                    "provenance": provenance,
                    "plan": plan.model_dump(mode="json"),
                },
            )

    def manifest(self) -> dict[str, Any]:
        """Raises StoredRunError for a folder that is no run, or of another schema."""
        try:
            held: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoSuchRun(f"{self.path} is no run: it has no manifest.json") from error
        except (OSError, ValueError) as error:
            raise StoredRunError(f"{self.path}/manifest.json cannot be read: {error}") from error
        if not isinstance(held, dict) or not isinstance(held.get("provenance"), dict):
            raise StoredRunError(f"{self.path}/manifest.json is not a run's")
        missing = _PROVENANCE - held["provenance"].keys()
        if held.get("schema") == HARNESS_SCHEMA and missing:
            raise StoredRunError(f"{self.path}/manifest.json lacks {', '.join(sorted(missing))}")
        if held.get("schema") != HARNESS_SCHEMA:
            raise StoredRunError(
                f"{self.path} has schema {held.get('schema')}, this version reads {HARNESS_SCHEMA}"
            )
        return held

    def plan(self) -> Plan:
        """The plan as it was resolved when the run began."""
        try:
            return Plan.model_validate(self.manifest()["plan"])
        except (KeyError, ValidationError) as error:
            raise StoredRunError(f"{self.path}/manifest.json holds no plan: {error}") from error

    @contextmanager
    def charts(self) -> Iterator[Path]:
        """The folder for charts, emptied of earlier ones. Raises FolderUnusable."""
        folder = self.path / "charts"
        with _usable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for stale in [*folder.glob("*.svg"), *folder.glob("*.png")]:
                stale.unlink()
            yield folder

    def write_text(self, name: str, text: str) -> None:
        """A file of the report, replaced as a whole."""
        with _usable(self.path):
            aside = self.path / f"{name}.aside"
            aside.write_text(text, encoding="utf-8")
            aside.replace(self.path / name)

    def write_prompts(self, suite: str, prompts: Sequence[Prompt]) -> None:
        """prompts/<suite>.jsonl: the text of what is asked, for a run that keeps text."""
        with _usable(self.path):
            (self.path / "prompts").mkdir(exist_ok=True)
        lines = (p.model_dump_json(exclude_defaults=True) + "\n" for p in prompts)
        self.write_text(f"prompts/{suite}.jsonl", "".join(lines))

    # cells

    def clear_aside(self) -> None:
        """Remove what a killed run left half-written."""
        for leftover in (self.path / "cells").glob(f"{_ASIDE}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def is_whole(self, cell: Cell) -> bool:
        """The cell is there by its id, and its records can be read."""
        if not self.has_cell(cell):
            return False
        try:
            self.read_data(cell)
            self.read_facts(cell)
        except StoredRunError:
            return False
        return True

    def has_cell(self, cell: Cell) -> bool:
        """The cell's summary is there and is this very cell's, by its id."""
        try:
            held = json.loads((self.path / "cells" / cell.slug / "summary.json").read_text())
            return bool(held["cell"]["cell_id"] == cell.cell_id)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write_cell(
        self,
        result: CellResult,
        data: CellData,
        before: CounterSnapshot,
        after: CounterSnapshot,
        *,
        keep_text: bool,
        keep_ids: bool,
    ) -> None:
        """All of a cell's files, or none. Raises FolderUnusable when they cannot be written."""
        aside = self.path / "cells" / f"{_ASIDE}{result.cell.slug}"
        final = self.path / "cells" / result.cell.slug
        with _usable(self.path):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            _write_records(aside, data.records, keep_text=keep_text, keep_ids=keep_ids)
            if data.steps:
                _write_steps(aside, data.steps)
            _write_json(
                aside / "counters.json",
                {
                    "before": before.model_dump(mode="json"),
                    "after": after.model_dump(mode="json"),
                    "delta": data.delta.model_dump(mode="json"),
                    "client": data.client.model_dump(mode="json"),
                    "concurrency": data.concurrency,
                    "depth": data.depth,
                    "warmup_requests": data.warmup_requests,
                    "steps": len(data.steps),
                },
            )
            _write_json(aside / "summary.json", result.model_dump(mode="json"))
            shutil.rmtree(final, ignore_errors=True)
            aside.replace(final)

    def read_data(self, cell: Cell) -> CellData:
        """A stored cell's records. Raises StoredRunError."""
        folder = self.path / "cells" / cell.slug
        try:
            held = json.loads((folder / "counters.json").read_text())
            records = _read_records(folder)
            if any(r.ok and not r.chunk_ns for r in records):
                raise ValueError("chunks.parquet lacks a request's rows")
            steps = _read_steps(folder)
            if len(steps) != held["steps"] or any(s.num_reqs is None for s in steps):
                raise ValueError(f"probe.parquet does not hold the cell's {held['steps']} steps")
            return CellData(
                records=records,
                delta=CounterDelta.model_validate(held["delta"]),
                client=ClientStats.model_validate(held["client"]),
                concurrency=int(held["concurrency"]),
                depth=held["depth"],
                warmup_requests=held["warmup_requests"],
                steps=steps,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoredRunError(f"{folder} cannot be read: {error}") from error

    def read_facts(self, cell: Cell) -> dict[str, Any]:
        """What summary.json says beside the metrics: when, how long, against what."""
        path = self.path / "cells" / cell.slug / "summary.json"
        try:
            held: dict[str, Any] = json.loads(path.read_text())
            return dict(held["facts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoredRunError(f"{path} cannot be read: {error}") from error

    # servers

    def server_dir(self, group: ServerGroup) -> Path:
        folder = self.path / "servers" / group.slug
        with _usable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def probe_dir(self, group: ServerGroup) -> Path:
        """Where the group's server leaves its steps while it runs."""
        return (self.path / "servers" / group.slug / "probe").resolve()

    def write_server(self, group: ServerGroup, row: dict[str, Any]) -> None:
        with _usable(self.path):
            _write_json(self.server_dir(group) / "command.json", row)

    def read_server(self, group: ServerGroup) -> dict[str, Any]:
        """command.json; {} when the group never started."""
        return _read_json_or_empty(self.path / "servers" / group.slug / "command.json")

    def write_failure(self, group: ServerGroup, text: str) -> None:
        with _usable(self.path):
            _write_json(self.server_dir(group) / "failure.json", {"error": masked(text)})

    def clear_failure(self, group: ServerGroup) -> None:
        with _usable(self.path):
            (self.path / "servers" / group.slug / "failure.json").unlink(missing_ok=True)

    def read_failure(self, group: ServerGroup) -> str | None:
        """Why the group could not be served; None when it could."""
        held = _read_json_or_empty(self.path / "servers" / group.slug / "failure.json")
        return held.get("error")


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turns what the file system refuses into one clear error."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FolderUnusable(
                f"no space left while writing {path}: free some or choose another --out; whole "
                "cells are kept, --resume goes on"
            ) from error
        raise FolderUnusable(f"cannot write {path}: {error.strerror or error}") from error


def _write_json(path: Path, value: Any) -> None:
    aside = path.with_name(f"{path.name}.aside")
    aside.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(path)


def _read_json_or_empty(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _write_records(
    folder: Path, records: Iterable[RequestRecord], *, keep_text: bool, keep_ids: bool
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, chunks = [], {"request": [], "t_ns": [], "tokens": []}  # type: ignore[var-annotated]
    for r in records:
        row = {
            name: getattr(r, name)
            for name in RequestRecord.__slots__
            if name not in ("chunk_ns", "chunk_tokens", "spec", "token_ids", "text", "reasoning")
        }
        row["spec"] = None if r.spec is None else asdict(r.spec)
        row["token_ids"] = list(r.token_ids) if keep_ids and r.token_ids is not None else None
        row["text"] = r.text if keep_text else None
        row["reasoning"] = r.reasoning if keep_text else None
        rows.append(row)
        chunks["request"] += [r.index] * len(r.chunk_ns)
        chunks["t_ns"] += r.chunk_ns
        chunks["tokens"] += r.chunk_tokens
    pq.write_table(
        pa.Table.from_pylist(rows, schema=_requests_schema()), folder / "requests.parquet"
    )
    pq.write_table(
        pa.table(chunks, schema=_chunks_schema()), folder / "chunks.parquet", compression="zstd"
    )


def _write_steps(folder: Path, steps: Sequence[Step]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [asdict(s) for s in steps]
    pq.write_table(pa.Table.from_pylist(rows, schema=_steps_schema()), folder / "probe.parquet")


def _read_steps(folder: Path) -> tuple[Step, ...]:
    import pyarrow.parquet as pq

    path = folder / "probe.parquet"
    if not path.is_file():
        return ()
    return tuple(Step(**row) for row in pq.read_table(path, schema=_steps_schema()).to_pylist())


def _steps_schema() -> Any:
    import pyarrow as pa

    counts = ("num_reqs", "num_tokens", "new_reqs", "verified", "depth")
    seconds = ("forward_s", "sample_s", "draft_s", "interval_s")
    return pa.schema(
        [("start_ns", pa.int64())]
        + [(name, pa.int32()) for name in counts]
        + [(name, pa.float64()) for name in seconds]
    )


def _requests_schema() -> Any:
    import pyarrow as pa

    whole, text = pa.int64(), pa.string()
    spec = pa.struct(
        [
            ("num_drafts", whole),
            ("num_draft_tokens", whole),
            ("num_accepted_tokens", whole),
            ("histogram", pa.list_(whole)),
        ]
    )
    return pa.schema(
        [
            ("index", whole),
            ("prompt_id", text),
            ("category", text),
            ("turn", whole),
            ("scheduled_ns", whole),
            ("sent_ns", whole),
            ("end_ns", whole),
            ("first_content_ns", whole),
            ("prompt_tokens", whole),
            ("completion_tokens", whole),
            ("finish_reason", text),
            ("model", text),
            ("status", whole),
            ("error", text),
            ("prompt_token_digest", text),
            ("num_token_ids", whole),
            ("ends_in_loop", pa.bool_()),
            ("score", text),
            ("merged_reads", whole),
            ("reads", whole),
            ("spec", spec),
            ("output_digest", text),
            ("token_ids", pa.list_(pa.int32())),
            ("text", text),
            ("reasoning", text),
        ]
    )


def _chunks_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("request", pa.int64()), ("t_ns", pa.int64()), ("tokens", pa.int32())])


def _read_records(folder: Path) -> tuple[RequestRecord, ...]:
    import pyarrow.parquet as pq

    chunks = pq.read_table(folder / "chunks.parquet", schema=_chunks_schema())
    times: dict[int, list[int]] = {}
    counts: dict[int, list[int]] = {}
    for request, t_ns, tokens in zip(
        *(chunks[name].to_pylist() for name in ("request", "t_ns", "tokens")), strict=True
    ):
        times.setdefault(request, []).append(t_ns)
        counts.setdefault(request, []).append(tokens)
    records = []
    for row in pq.read_table(folder / "requests.parquet", schema=_requests_schema()).to_pylist():
        spec = row.pop("spec")
        ids = row.pop("token_ids")
        text, reasoning = row.pop("text"), row.pop("reasoning")
        if spec is not None:
            spec = SpecMetrics(**{**spec, "histogram": tuple(spec["histogram"])})
        records.append(
            RequestRecord(
                **row,
                spec=spec,
                token_ids=None if ids is None else tuple(ids),
                text=text or "",
                reasoning=reasoning or "",
                chunk_ns=tuple(times.get(row["index"], ())),
                chunk_tokens=tuple(counts.get(row["index"], ())),
            )
        )
    return tuple(records)
