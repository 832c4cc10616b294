"""SPEED-Bench: rows of the hub or of NVIDIA's preparation scripts; placeholders are never sent.

About half of the rows on the hub are placeholders: their text belongs to other data sets and has
to be fetched from there. `suites prepare` fills those that a row's own template and source id
determine; the others need NVIDIA's script, whose two output shapes both load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peagle_bench.core.result import Finding
from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.errors import ConfigError, SuiteUnavailable
from peagle_bench.suites import hub, prepared, speed_sources
from peagle_bench.suites.files import Broken, digest_of_file, rows_of
from peagle_bench.suites.loaded import Loaded, LoadOptions, Unusable
from peagle_bench.suites.rows import PLACEHOLDER, of_turns

JSONL_SCRIPT = (
    "https://raw.githubusercontent.com/NVIDIA-NeMo/Skills/refs/heads/main/nemo_skills/dataset/"
    "speed-bench/prepare.py"
)


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """The suite's rows with their turns. Raises SuiteUnavailable while rows are placeholders,
    unless a part is allowed; then the part is stamped."""
    rows, facts = _rows(suite)
    return _loaded(suite, rows, facts, options.allow_partial)


def _loaded(
    suite: Suite, rows: Sequence[dict[str, Any]], facts: dict[str, Any], allow_partial: bool
) -> Loaded:
    wanted = [r for r in rows if suite.category in (None, r["category"])]
    if not wanted:
        have = ", ".join(sorted({str(r["category"]) for r in rows}))
        raise ConfigError(f"no row has category {suite.category}; there are {have}")
    filled = [r for r in wanted if not is_placeholder(r)]
    missing = len(wanted) - len(filled)
    facts = facts | {"rows": len(wanted), "placeholders": missing}
    if missing and not allow_partial:
        raise SuiteUnavailable(_incomplete(suite, wanted, missing))
    if not filled:
        raise SuiteUnavailable(
            f"all {len(wanted)} rows of {suite.name} are placeholders here: {_commands(suite)}"
        )
    stamps: tuple[Finding, ...] = ()
    if missing:
        text = (
            f"PARTIAL: {len(filled)} of {len(wanted)} prompts ({len(filled) / len(wanted):.0%}); "
            "the others are placeholders here. Not SPEED-Bench's own figure"
        )
        stamps = (Finding(code="partial", text=text, remedy=_commands(suite)),)
    return Loaded([_prompt(r) for r in filled], stamps, facts)


def prepare(suite: Suite, path: Path | None, options: LoadOptions) -> str:
    """Lay the config's rows by, from the hub with what can be filled, or as prepared under `path`.

    One line for the user. Raises SuiteUnavailable, or ConfigError for a path without the config.
    """
    assert suite.hub is not None
    config = str(suite.hub.config)
    if path is not None:
        file = _prepared_file(path, config)
        rows = []
        for number, row in rows_of(file):
            place = f"{file.name}:{number}"
            if isinstance(row, Broken) or not isinstance(row, dict):
                raise ConfigError(f"{place} is no row of SPEED-Bench")
            rows.append(_row(row, place))
        _check_rows(suite, rows)
        facts: dict[str, Any] = {"source": str(file), "file": digest_of_file(file)}
        told = []
    else:
        rows, facts = _from_hub(suite)
        told = speed_sources.fill([r for r in rows if is_placeholder(r)], PLACEHOLDER, options.say)
    folder = prepared.write(suite, rows, facts, _kept_as(config))
    left = sum(is_placeholder(r) for r in rows)
    lines = [f"{len(rows)} rows from {facts['source']} laid by in {folder}"]
    lines += told
    if left:
        lines.append(
            f"{left} of {len(rows)} rows are still placeholders and will not be sent "
            f"({_by_category(rows)}). {_commands(suite)}. Or measure the others with "
            "--allow-partial"
        )
    return "\n".join(lines)


def is_here(suite: Suite) -> bool:
    return _was_prepared(suite)


def is_placeholder(row: dict[str, Any]) -> bool:
    """Some turn's text has yet to be fetched from its source."""
    return any(str(turn).startswith(PLACEHOLDER) for turn in row["turns"])


def _rows(suite: Suite) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert suite.hub is not None
    held = prepared.read(suite, _kept_as(str(suite.hub.config)))
    if held is not None:
        rows, facts = held
        facts.pop("rows", None)
        return rows, facts
    return _from_hub(suite)


def _from_hub(suite: Suite) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert suite.hub is not None
    held, facts = hub.fetch(suite.hub, suite)
    rows = [_row(r, f"row {i}") for i, r in enumerate(held)]
    _check_rows(suite, rows)
    return rows, facts


def _kept_as(config: str) -> str:
    return f"speed-bench-{config}"


def _row(row: dict[str, Any], place: str) -> dict[str, Any]:
    """A row with `turns`, whichever script wrote it. Raises ConfigError for another shape."""
    turns = row.get("turns")
    if turns is None and isinstance(row.get("messages"), (list, tuple)):
        turns = [m.get("content") for m in row["messages"] if m.get("role") == "user"]
    if not isinstance(turns, (list, tuple)) or not turns or "category" not in row:
        raise ConfigError(f"{place} is no row of SPEED-Bench: it lacks turns or a category")
    kept = {k: v for k, v in row.items() if k != "messages"}
    return kept | {"turns": [str(t) for t in turns]}


def _prompt(row: dict[str, Any]) -> Prompt:
    name = str(row["question_id"])
    try:
        return of_turns(row["turns"], name, str(row["category"]))
    except Unusable as why:
        raise SuiteUnavailable(f"{name}: {why}") from why


def _check_rows(suite: Suite, rows: Sequence[dict[str, Any]]) -> None:
    if suite.rows is not None and len(rows) != suite.rows:
        raise SuiteUnavailable(
            f"config {suite.hub and suite.hub.config} has {suite.rows} rows, found {len(rows)}"
        )


def _prepared_file(path: Path, config: str) -> Path:
    """`{config}.jsonl` or `{config}/test.parquet` at or below the path. Raises ConfigError."""
    if path.is_file():
        return path
    known = (path / f"{config}.jsonl", path / config / "test.parquet", path / "test.parquet")
    for file in (*known, *sorted(path.rglob(f"{config}/test.parquet"))):
        if file.is_file():
            return file
    raise ConfigError(f"{path} holds neither {config}.jsonl nor {config}/test.parquet")


def _by_category(rows: Sequence[dict[str, Any]]) -> str:
    counts = Counter(str(r["category"]) for r in rows if is_placeholder(r))
    return ", ".join(f"{name} {n}" for name, n in counts.most_common())


def _commands(suite: Suite) -> str:
    config = suite.hub.config if suite.hub else "all"
    return (
        f"NVIDIA's script fills them: curl -LsSf {JSONL_SCRIPT} | python3 - --config {config} "
        f"--output_dir DIR, then peagle-bench suites prepare {suite.name} --from DIR (or in "
        "examples/specdec_bench of NVIDIA/Model-Optimizer: python3 prepare_data.py --dataset "
        f"speed --config {config} --output_dir DIR, then --from DIR/speed)"
    )


def _incomplete(suite: Suite, rows: Sequence[dict[str, Any]], missing: int) -> str:
    fills = (
        ""
        if _was_prepared(suite)
        else f" Fill what is openly reachable with peagle-bench \
suites prepare {suite.name}."
    )
    stand_in = f" --suite {suite.stand_in} needs no download." if suite.stand_in else ""
    return (
        f"{missing} of {len(rows)} prompts of {suite.name} are placeholders whose text belongs to "
        f"other data sets ({_by_category(rows)}): they are not sent.{fills} {_commands(suite)}. "
        f"--allow-partial measures the other {len(rows) - missing} and says so.{stand_in}"
    )


def _was_prepared(suite: Suite) -> bool:
    return prepared.is_prepared(_kept_as(str(suite.hub.config if suite.hub else "")))
