"""Rows out of files: JSON Lines, JSON, Parquet, gzipped or not, one file or a folder of them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.errors import ConfigError

ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".jsonl.gz", ".ndjson.gz", ".json.gz")


class Broken:
    """A line that holds no row; `why` says so without its content."""

    def __init__(self, why: str) -> None:
        self.why = why


def data_files(path: Path) -> list[Path]:
    """The file, or every data file below the folder, in order. Raises ConfigError for none."""
    if path.is_file():
        if not path.name.lower().endswith(ENDINGS):
            raise ConfigError(f"{path} has none of the endings {', '.join(ENDINGS)}, .yaml")
        return [path]
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    found = sorted(
        p
        for p in path.rglob("*")
        if p.name.lower().endswith(ENDINGS)
        and p.is_file()
        and not any(part.startswith(".") for part in p.relative_to(path).parts)
    )
    if not found:
        raise ConfigError(f"{path} holds no file that ends with {', '.join(ENDINGS)}")
    return found


def rows_of(path: Path) -> Iterator[tuple[int, Any | Broken]]:
    """Each row with its number, from 1. Raises ConfigError for an unreadable file."""
    name = path.name.lower().removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            rows: Iterator[Any] = iter(_parquet(path))
        elif name.endswith(".json") or _begins_a_list(path):
            rows = iter(_json(path))
        else:
            rows = _lines(path)
        for number, row in enumerate(rows, 1):
            if row is not None:
                yield number, row
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def digest_of_file(path: Path) -> str:
    """sha256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_files(paths: Sequence[Path]) -> str:
    """sha256 over the digests of the files, in order."""
    return hashlib.sha256("".join(map(digest_of_file, paths)).encode()).hexdigest()


def _zipped(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _lines(path: Path) -> Iterator[Any]:
    """A row a line; None for an empty one."""
    with gzip.open(path, "rb") if _zipped(path) else path.open("rb") as lines:
        for number, line in enumerate(lines):
            if number == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                yield None
                continue
            try:
                yield json.loads(line.decode())
            except UnicodeDecodeError:
                yield Broken("no UTF-8")
            except (ValueError, RecursionError):
                yield Broken("no JSON")


def _begins_a_list(path: Path) -> bool:
    """A file called .jsonl whose first line is a lone `[`: one JSON list after all."""
    with gzip.open(path, "rb") if _zipped(path) else path.open("rb") as file:
        first = file.readline(1 << 16)
    if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError("it is UTF-16: convert it to UTF-8")
    return first.strip() == b"["


def _json(path: Path) -> list[Any]:
    """A JSON list, a list under `data`, or one object; JSON Lines under a wrong name too."""
    with gzip.open(path, "rb") if _zipped(path) else path.open("rb") as file:
        text = file.read().decode("utf-8-sig")
    try:
        held = json.loads(text)
    except ValueError:
        rows = list(_lines(path))
        if any(isinstance(r, Broken) for r in rows):
            raise
        return rows
    if isinstance(held, dict) and isinstance(held.get("data"), list):
        return list(held["data"])
    return held if isinstance(held, list) else [held]


def _parquet(path: Path) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        # What a prompt is made of; times and decimals can hold what Python cannot.
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer,
                 pa.types.is_boolean, pa.types.is_list, pa.types.is_large_list,
                 pa.types.is_struct)  # fmt: skip
        names = [f.name for f in file.schema_arrow if any(kind(f.type) for kind in kinds)]
        rows: list[Any] = file.read(columns=names).to_pylist()
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(str(error)) from error
    return rows
