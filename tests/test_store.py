from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Cell, ServerGroup
from peagle_bench.core.record import CounterSnapshot
from peagle_bench.core.step import Step
from peagle_bench.errors import FolderUnusable, NoSuchRun, StoredRunError
from peagle_bench.store import RunFolder
from tests.conftest import cell_data, record, spec

CELL = Cell(
    cell_id="ab" * 32,
    group=ServerGroup(method="peagle", depth=7, repeat=1),
    suite="humaneval",
    concurrency=2,
    num_prompts=2,
    num_requests=2,
    max_tokens=8,
)
NONE = CounterSnapshot()


def written(path: Path, **keep: bool) -> RunFolder:
    folder = RunFolder.create(path / "run")
    data = cell_data(
        [record(0, spec=spec(3, 4, 7), text="secret words"), record(1, error="reset", text="x")],
        depth=7,
    )
    result = summarise(CELL, data, Terms(served_name="m"), {"started": "now"})
    keep = {"keep_text": False, "keep_ids": True} | keep
    folder.write_cell(result, data, NONE, NONE, **keep)
    return folder


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = written(tmp_path, keep_text=True)
    data = folder.read_data(CELL)
    assert data.records[0] == record(0, spec=spec(3, 4, 7), text="secret words")
    assert data.records[1].error == "reset"
    assert data.depth == 7
    assert folder.read_facts(CELL) == {"started": "now"}


def test_text_and_ids_stay_out_unless_they_are_kept(tmp_path: Path) -> None:
    folder = written(tmp_path, keep_ids=False)
    got = folder.read_data(CELL).records[0]
    assert (got.text, got.token_ids) == ("", None)
    stored = b"".join(p.read_bytes() for p in folder.path.rglob("*") if p.is_file())
    assert b"secret words" not in stored


def test_steps_are_read_back_and_a_probe_file_that_is_lost_or_foreign_is_noticed(
    tmp_path: Path,
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    steps = tuple(Step(i, 1, 8, 0, 1, 7, 0.05, 0.001, 0.02, None) for i in range(3))
    data = replace(cell_data([record(0, spec=spec(3, 4, 7))], depth=7), steps=steps)
    result = summarise(CELL, data, Terms(served_name="m"), {"started": "now"})
    folder.write_cell(result, data, NONE, NONE, keep_text=False, keep_ids=True)
    assert folder.read_data(CELL).steps == steps
    cell = folder.path / "cells" / CELL.slug
    shutil.copy(cell / "requests.parquet", cell / "probe.parquet")
    with pytest.raises(StoredRunError, match="does not hold the cell's 3 steps"):
        folder.read_data(CELL)
    (cell / "probe.parquet").unlink()
    with pytest.raises(StoredRunError, match="does not hold the cell's 3 steps"):
        folder.read_data(CELL)


def test_a_cell_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(FolderUnusable, match="no space left.*--resume"):
        written(tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert not folder.has_cell(CELL)
    assert not (folder.path / "cells" / CELL.slug).exists()
    folder.clear_aside()
    assert list((folder.path / "cells").iterdir()) == []


def test_a_cell_of_another_id_is_not_this_cell(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert folder.has_cell(CELL)
    other = CELL.model_copy(update={"cell_id": CELL.cell_id[:8] + "00" * 28})
    assert other.slug == CELL.slug
    assert not folder.has_cell(other)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="cannot write"):
        RunFolder.create(tmp_path / "file" / "run")


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun, match="has no manifest.json"):
        RunFolder(tmp_path).manifest()


def test_a_run_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 99, "provenance": {}}))
    with pytest.raises(StoredRunError, match="schema 99"):
        RunFolder(tmp_path).manifest()


def test_half_a_cell_is_an_error_and_not_a_number(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder.path / "cells" / CELL.slug / "chunks.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(StoredRunError, match="cannot be read"):
        folder.read_data(CELL)
