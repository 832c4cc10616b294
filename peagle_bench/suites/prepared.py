"""Rows that `suites prepare` laid by: complete, local, and with where they came from.

<cache>/suites/<name>/rows.jsonl   one row a line, as the source has it
                      about.json   source, revision, digest of rows.jsonl, counts
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peagle_bench.core.suite import Suite
from peagle_bench.errors import FolderUnusable, SuiteUnavailable
from peagle_bench.resources import cache_root
from peagle_bench.suites.files import digest_of_file


def folder_of(name: str) -> Path:
    return cache_root() / "suites" / name


def is_prepared(name: str) -> bool:
    return (folder_of(name) / "about.json").is_file()


def read(
    suite: Suite, name: str | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Rows and facts; None when nothing was prepared, or of another data set or revision.

    name: what the rows are kept under, where several suites share them.
    Raises SuiteUnavailable when the files were changed or damaged.
    """
    name = name or suite.name
    folder = folder_of(name)
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        rows = [json.loads(line) for line in (folder / "rows.jsonl").open(encoding="utf-8")]
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SuiteUnavailable(_again(suite, folder, str(error))) from error
    if about.get("sha256") != digest_of_file(folder / "rows.jsonl"):
        raise SuiteUnavailable(_again(suite, folder, "rows.jsonl is not what was prepared"))
    if about.get("of") != _of(suite):
        return None
    if suite.hub and about.get("revision") not in (None, suite.hub.revision):
        return None
    return rows, about


def write(
    suite: Suite, rows: Sequence[dict[str, Any]], facts: dict[str, Any], name: str | None = None
) -> Path:
    """Lay rows by, replaced as a whole. Raises FolderUnusable."""
    folder = folder_of(name or suite.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f"rows.jsonl.{os.getpid()}"
        with aside.open("w", encoding="utf-8") as out:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        about = facts | {"of": _of(suite), "rows": len(rows), "sha256": digest_of_file(aside)}
        (folder / "about.json").unlink(missing_ok=True)
        aside.replace(folder / "rows.jsonl")
        (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise FolderUnusable(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def _of(suite: Suite) -> list[Any]:
    """What the rows are a copy of: another suite of the same name must not take them."""
    source = suite.hub
    held = [source.dataset, source.config, source.split] if source else []
    return [*held, suite.sample]


def _again(suite: Suite, folder: Path, why: str) -> str:
    return f"{folder} cannot be used ({why}): peagle-bench suites prepare {suite.name}"
