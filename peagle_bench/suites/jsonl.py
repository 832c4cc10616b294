"""One's own traffic: files and folders whose rows say themselves what they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peagle_bench.core.result import Finding
from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.errors import ConfigError
from peagle_bench.suites.data_capture import is_capture, prompts_of_capture, time_of
from peagle_bench.suites.files import Broken, data_files, digest_of_files, rows_of
from peagle_bench.suites.loaded import Loaded, LoadOptions, Skipped, Unusable
from peagle_bench.suites.rows import of_columns, prompts_of, sendable


def suite_of_path(path: Path) -> Suite:
    """A suite around a file or folder of one's own."""
    stem = path.name.split(".")[0] if path.is_file() else path.resolve().name
    return Suite(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:60] or "traffic",
        version="own",
        title=f"own traffic: {path.name or path.resolve().name}",
        loader="jsonl",
        source=str(path),
        license="your own",
        path=str(path),
    )


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """Every row that is a request; others are skipped, counted and said. Raises ConfigError."""
    assert suite.path is not None
    path = Path(suite.path).expanduser()
    files = data_files(path)
    skipped = Skipped()
    dated: list[tuple[str, Prompt]] = []
    rows = 0
    for place, name, row in _rows(path, files):
        rows += 1
        try:
            if isinstance(row, Broken):
                raise Unusable(row.why)
            dated += [(_when(row), sendable(p)) for p in _prompts(suite, row, name)]
        except Unusable as why:
            skipped.add(str(why), place)
    if not dated:
        found = f"none of its {rows} rows is a request: {skipped}" if rows else "it holds no row"
        raise ConfigError(
            f"{path}: {found}. Known: OpenAI chat or completions bodies, batch lines, "
            '{"prompt": …}, {"turns": […]}, ShareGPT, SageMaker Data Capture'
        )
    dated.sort(key=lambda d: d[0])  # several hours' files in the order of the traffic; stable
    facts = {
        "rows": rows,
        "skipped": dict(skipped.reasons),
        "files": len(files),
        "sha256": digest_of_files(files),
    }
    return Loaded([p for _, p in dated], (*skipped.stamps(rows), *_left_out(dated)), facts)


def _rows(path: Path, files: list[Path]) -> Iterator[tuple[str, str, Any]]:
    """(place, name for a prompt without an id of its own, row) of every file.

    In a folder a file that cannot be read is one broken row, and the others go on.
    """
    for file in files:
        if file == path:
            yield from ((f"{path.name}:{n}", f"row-{n}", row) for n, row in rows_of(file))
            continue
        place = str(file.relative_to(path))
        try:
            for n, row in rows_of(file):
                yield f"{place}:{n}", f"{place}:{n}", row
        except ConfigError:
            yield place, place, Broken("a file that cannot be read")


def _left_out(dated: list[tuple[str, Prompt]]) -> tuple[Finding, ...]:
    """What must be said where requests had fields that are not sent."""
    counts = Counter(field for _, p in dated for field in p.left_out)
    if not counts:
        return ()
    told = ", ".join(f"{field} ({n})" for field, n in counts.most_common())
    text = f"fields of requests are not sent, so replies may be others than in production: {told}"
    return (Finding(code="fields-left-out", text=text),)


def _when(row: Any) -> str:
    return time_of(row) if is_capture(row) else ""


def _prompts(suite: Suite, row: Any, name: str) -> list[Prompt]:
    """The row's prompts. Raises Unusable, also where the suite's wording cannot be put to it."""
    found = _shaped(suite, row, name)
    if suite.endpoint == "completions" and any(p.messages for p in found):
        raise Unusable("a chat request, and the suite sends raw text")
    plain = suite.columns.prompt is not None if suite.columns else _is_plain(row)
    if suite.template != "{prompt}" and not plain:
        raise Unusable("a row that the suite's template cannot be put around")
    return found


def _is_plain(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("prompt"), str) and not row.get("model")


def _shaped(suite: Suite, row: Any, place: str) -> list[Prompt]:
    if suite.columns is not None:
        if not isinstance(row, dict):
            raise Unusable("no JSON object")
        missing = [c for c in suite.columns.model_dump().values() if c and c not in row]
        if missing:
            raise Unusable(f"no column {', '.join(missing)}")
        return [of_columns(row, suite.columns, place, suite)]
    if is_capture(row):
        return prompts_of_capture(row, place)
    return prompts_of(row, place, suite)
