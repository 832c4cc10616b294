"""Texts of SPEED-Bench's placeholder rows, from the data sets they belong to.

Only rows that are wholly determined by what they carry (template and source id) and by a public
data set are filled here. Sources, revisions and the meaning of `src_id` are those of NVIDIA's
preparation script (Model-Optimizer, examples/specdec_bench, as of 2026-08). What its script makes
with wording of its own (multiple choice, retrieval, role play with profiles, padding to a length)
is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Source:
    """One public data set that rows draw on."""

    mark: str
    """Part of a row's `source`."""
    title: str
    fill: Callable[[Sequence[Row], str], int]
    """Fills rows in place; how many it could. Raises whatever the libraries raise."""


def fill(rows: Sequence[Row], placeholder: str, say: Callable[[str], None]) -> list[str]:
    """Fill placeholder rows in place; a line for each source about what became of its rows."""
    lines = []
    for source in _SOURCES:
        mine = [r for r in rows if source.mark in str(r.get("source", ""))]
        if not mine:
            continue
        say(f"filling {len(mine)} rows from {source.title}")
        try:
            done = source.fill(mine, placeholder)
        except Exception as error:  # one source out of reach must not cost the others
            why = " ".join(str(error).split())[:120]
            lines.append(f"{source.title}: 0 of {len(mine)} filled ({type(error).__name__}: {why})")
            continue
        lines.append(f"{source.title}: {done} of {len(mine)} filled")
    return lines


def _templated(row: Row, placeholder: str, **values: Any) -> bool:
    """Put values into the template after the placeholder; False where that is not possible."""
    template = str(row["turns"][0]).removeprefix(placeholder).removeprefix("\n\n")
    if not template.strip():
        return False
    try:
        text = template.format(**values)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False
    row["turns"] = [text, *row["turns"][1:]]
    return True


def _hub(dataset: str, config: str | None, revision: str | None) -> Iterable[Mapping[str, Any]]:
    import datasets

    loaded: Iterable[Mapping[str, Any]] = datasets.load_dataset(
        dataset, config, split="test", revision=revision
    )
    return loaded


def _by_key(
    rows: Sequence[Row], source: Iterable[Mapping[str, Any]], key: str
) -> list[tuple[Row, Mapping[str, Any]]]:
    """Each row beside its source's row, found by `src_id` in the column `key`."""
    wanted = {str(r["src_id"]) for r in rows}
    held = {str(s[key]): s for s in source if str(s[key]) in wanted}
    return [(r, held[str(r["src_id"])]) for r in rows if str(r["src_id"]) in held]


def _cnn(rows: Sequence[Row], placeholder: str) -> int:
    pairs = _by_key(rows, _hub("abisee/cnn_dailymail", "3.0.0", None), "id")
    return sum(_templated(r, placeholder, article=s["article"]) for r, s in pairs)


def _code_contests(rows: Sequence[Row], placeholder: str) -> int:
    revision = "802411c3010cb00d1b05bad57ca77365a3c699d6"
    pairs = _by_key(rows, _hub("deepmind/code_contests", None, revision), "name")
    return sum(_templated(r, placeholder, question=s["description"]) for r, s in pairs)


def _livecodebench(rows: Sequence[Row], placeholder: str) -> int:
    """Streamed line by line: six files of gigabytes, mostly hidden tests."""
    from huggingface_hub import HfFileSystem

    revision = "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
    files = HfFileSystem()
    wanted = {str(r["src_id"]): r for r in rows}
    done = 0
    for name in ("test", "test2", "test3", "test4", "test5", "test6"):
        if not wanted:
            break
        path = f"datasets/livecodebench/code_generation_lite@{revision}/{name}.jsonl"
        with files.open(path, "r", encoding="utf-8") as lines:
            for line in lines:
                held = json.loads(line)
                row = wanted.pop(str(held["question_id"]), None)
                if row is not None:
                    done += _templated(
                        row,
                        placeholder,
                        question=held["question_content"],
                        starter_code=held["starter_code"],
                    )
    return done


def _opus(rows: Sequence[Row], placeholder: str) -> int:
    """`src_id` is `<set>_<language pair>_<row>`; the template picks from the translation."""
    revision = "805090dc28bf78897da9641cdf08b61287580df9"
    done = 0
    pairs: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        parts = str(row["src_id"]).split("_")
        if len(parts) == 3 and parts[2].isdigit():
            pairs.setdefault(parts[1], []).append((int(parts[2]), row))
    for pair, wanted in pairs.items():
        held = list(_hub("Helsinki-NLP/opus-100", pair, revision))
        for number, row in wanted:
            if number < len(held):
                done += _templated(row, placeholder, question=held[number]["translation"])
    return done


def _hle(rows: Sequence[Row], placeholder: str) -> int:
    """Gated. Only where the question alone is the prompt: the qualitative rows, without a tier."""
    tiers = ("low_entropy", "mixed", "high_entropy")
    plain = [r for r in rows if r["category"] not in tiers]
    if not plain:
        return 0
    pairs = _by_key(plain, _hub("cais/hle", None, "021a3d71f516a7ac28ceb8d284969902edf1edeb"), "id")
    for row, source in pairs:
        row["turns"] = [str(source["question"])]
    return len(pairs)


def _mt_bench_101(rows: Sequence[Row], placeholder: str) -> int:
    """`source` is the address of the file, the number after the last `_` of `src_id` its row."""
    import datasets

    done = 0
    addresses = {str(r["source"]) for r in rows}
    for address in addresses:
        held = datasets.load_dataset("json", data_files={"test": address}, split="test")
        for row in rows:
            number = str(row["src_id"]).rpartition("_")[2]
            if row["source"] == address and number.isdigit() and int(number) < len(held):
                row["turns"] = [str(h["user"]) for h in held[int(number)]["history"]]
                done += 1
    return done


_SOURCES = (
    _Source("abisee/cnn_dailymail", "CNN/DailyMail", _cnn),
    _Source("cais/hle", "HLE (gated)", _hle),
    _Source("livecodebench/code_generation_lite", "LiveCodeBench", _livecodebench),
    _Source("deepmind/code_contests", "CodeContests", _code_contests),
    _Source("mtbench101/mt-bench-101", "MT-Bench-101", _mt_bench_101),
    _Source("Helsinki-NLP/opus-100", "OPUS-100", _opus),
)
