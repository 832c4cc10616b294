"""SPEED-Bench with rows made up by us: placeholders, filling, both prepared shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.errors import ConfigError, SuiteUnavailable
from peagle_bench.suites import catalog
from peagle_bench.suites.loaded import Loaded, LoadOptions
from peagle_bench.suites.rows import PLACEHOLDER
from tests.conftest import HUB
from tests.standin_hub import GOOD_TOKEN, jsonl, parquet

CATEGORIES = ("coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning",
              "roleplay", "stem", "summarization", "writing")  # fmt: skip
TIERS = ("low_entropy", "mixed", "high_entropy")
REVISION = "487aa718444e816458d1a0a52bfce7a454285cf4"
Row = dict[str, Any]


def row(category: str, number: int, *turns: str, source: str = "own", src_id: str = "") -> Row:
    return {
        "question_id": f"{category}-{number}",
        "category": category,
        "sub_category": "",
        "turns": list(turns or (f"{category} question {number}?",)),
        "source": source,
        "src_id": src_id,
        "difficulty": "",
        "multiturn": len(turns) > 1,
    }


def qualitative() -> list[Row]:
    """880 rows, 80 of each category; every tenth of two turns; none a placeholder."""
    rows = []
    for category in CATEGORIES:
        for i in range(80):
            turns = (f"{category} {i}?", "and then?") if i % 10 == 0 else (f"{category} {i}?",)
            rows.append(row(category, i, *turns))
    return rows


def placeholders(rows: list[Row]) -> dict[str, Row]:
    """Turns some coding and other rows into placeholders, one of each kind; by source."""
    template = f"{PLACEHOLDER}\n\n"
    held = {
        "cnn": row("summarization", 3, f"{template}Summarise:\n{{article}}",
                   source="abisee/cnn_dailymail", src_id="cnn-7"),
        "contests": row("coding", 4, f"{template}Solve {{question}} in C++",
                        source="https://huggingface.co/datasets/deepmind/code_contests",
                        src_id="1575_A"),
        "live": row("coding", 5, f"{template}{{question}}\n{{starter_code}}",
                    source="livecodebench/code_generation_lite", src_id="lc9"),
        "opus": row("multilingual", 6, f"{template}Translate: {{question[de]}}",
                    source="Helsinki-NLP/opus-100", src_id="opus_de-en_1"),
        "hle": row("stem", 7, PLACEHOLDER, source="cais/hle", src_id="hle3"),
        "mt101": row("roleplay", 8, PLACEHOLDER, PLACEHOLDER,
                     source=f"{HUB.url}/datasets/mtbench101/mt-bench-101/resolve/main/a.jsonl",
                     src_id="mt_1"),
        "mmlu": row("qa", 9, PLACEHOLDER, source="TIGER-Lab/MMLU-Pro", src_id="x(3,5)"),
        "later turn": row("rag", 10, "fine", f"{PLACEHOLDER}", source="nvidia/ChatRAG-Bench"),
    }  # fmt: skip
    places = {(r["category"], r["question_id"]): i for i, r in enumerate(rows)}
    for new in held.values():
        rows[places[(new["category"], new["question_id"])]] = new
    return held


def serve(config: str, rows: list[Row]) -> None:
    files = {
        "README.md": f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: test\n"
        f"    path: {config}/test-*\n---\n".encode(),
        f"{config}/test-00000-of-00001.parquet": parquet(rows),
    }
    HUB.add("nvidia/SPEED-Bench", files, revision=REVISION)


@pytest.fixture(autouse=True)
def own_cache(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Our cache, and the libraries': every test serves other rows under the same revision."""
    import datasets
    from huggingface_hub import HfFileSystem, constants

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    HfFileSystem.clear_instance_cache()
    yield
    HUB.broken = False


def loaded(name: str = "speed", partial: bool = False) -> Loaded:
    return catalog.load(catalog.suite_named(name), LoadOptions(allow_partial=partial))


def test_the_whole_suite_is_880_rows_and_each_category_80_of_them() -> None:
    serve("qualitative", qualitative())
    whole = loaded()
    assert len(whole.prompts) == 880
    assert sum(p.num_turns > 1 for p in whole.prompts) == 88
    assert whole.facts["revision"] == REVISION
    code = loaded("speed-code").prompts
    assert len(code) == 80
    assert {p.category for p in code} == {"coding"}


def test_placeholders_are_refused_with_their_count_the_script_and_the_stand_in() -> None:
    rows = qualitative()
    placeholders(rows)
    serve("qualitative", rows)
    with pytest.raises(SuiteUnavailable) as caught:
        loaded("speed-code")
    text = str(caught.value)
    assert "2 of 80 prompts of speed-code are placeholders" in text
    assert "(coding 2)" in text
    assert "peagle-bench suites prepare speed-code" in text
    assert "speed-bench/prepare.py | python3 - --config qualitative --output_dir DIR" in text
    assert "prepare_data.py --dataset speed --config qualitative" in text
    assert "--suite code-mini needs no download" in text
    assert len(loaded("speed-math").prompts) == 80  # none of its rows is one


def test_a_part_is_measured_only_when_allowed_and_stamped_with_its_share() -> None:
    rows = qualitative()
    placeholders(rows)
    serve("qualitative", rows)
    part = loaded("speed", partial=True)
    assert len(part.prompts) == 872
    assert not any(PLACEHOLDER in t for p in part.prompts for t in p.texts())
    (stamp,) = part.stamps
    assert stamp.text.startswith("PARTIAL: 872 of 880 prompts (99%)")


def test_a_category_of_nothing_but_placeholders_cannot_be_measured_even_in_part() -> None:
    rows = [r | {"turns": [PLACEHOLDER]} if r["category"] == "qa" else r for r in qualitative()]
    serve("qualitative", rows)
    with pytest.raises(SuiteUnavailable, match="all 80 rows of speed-qa are placeholders"):
        loaded("speed-qa", partial=True)


def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The open data sets that rows draw on, in their schemas."""

    def add(dataset: str, revision: str, name: str, content: bytes, **fields: Any) -> None:
        config = name.split("/")[0]
        front = (
            f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: test\n"
            f"    path: {config}/test-*\n---\n"
        )
        HUB.add(dataset, {"README.md": front.encode(), name: content}, revision=revision, **fields)

    add(
        "abisee/cnn_dailymail",
        "4" * 40,
        "3.0.0/test-0.parquet",
        parquet([{"id": "cnn-7", "article": "It rained {a lot}.", "highlights": ""}]),
    )
    add(
        "deepmind/code_contests",
        "802411c3010cb00d1b05bad57ca77365a3c699d6",
        "default/test-0.parquet",
        parquet([{"name": "1575_A", "description": "Sort the words"}]),
    )
    add(
        "Helsinki-NLP/opus-100",
        "805090dc28bf78897da9641cdf08b61287580df9",
        "de-en/test-0.parquet",
        parquet([{"translation": {"de": f"Satz {i}", "en": f"sentence {i}"}} for i in range(3)]),
    )
    add(
        "cais/hle",
        "021a3d71f516a7ac28ceb8d284969902edf1edeb",
        "default/test-0.parquet",
        parquet([{"id": "hle3", "question": "Why?"}]),
        gated=True,
    )
    HUB.add(
        "mtbench101/mt-bench-101",
        {
            "a.jsonl": jsonl(
                [{"history": []}, {"history": [{"user": "act as x", "bot": "y"}, {"user": "more"}]}]
            )
        },
    )
    HUB.add("livecodebench/code_generation_lite", {
        "test.jsonl": jsonl([{"question_id": "other", "question_content": "", "starter_code": ""}]),
        "test2.jsonl": jsonl(
            [{"question_id": "lc9", "question_content": "Count", "starter_code": "def f():"}]),
    }, revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505")  # fmt: skip


def test_prepare_fills_what_open_sources_determine_and_says_what_is_left(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = qualitative()
    placeholders(rows)
    serve("qualitative", rows)
    sources(monkeypatch)
    done = invoke("suites", "prepare", "speed")
    assert done.returncode == 0, done.stderr
    assert "CNN/DailyMail: 1 of 1 filled" in done.stdout
    assert "HLE (gated): 0 of 1 filled (DatasetNotFoundError" in done.stdout
    assert "3 of 880 rows are still placeholders" in done.stdout
    filled = {p.prompt_id: p for p in loaded(partial=True).prompts}
    assert filled["summarization-3"].texts() == ["Summarise:\nIt rained {a lot}."]
    assert filled["coding-4"].texts() == ["Solve Sort the words in C++"]
    assert filled["coding-5"].texts() == ["Count\ndef f():"]
    assert filled["multilingual-6"].texts() == ["Translate: Satz 1"]
    assert filled["roleplay-8"].texts() == ["act as x", "more"]
    assert not {"stem-7", "qa-9", "rag-10"} & filled.keys()
    assert len(loaded("speed-code").prompts) == 80
    with pytest.raises(SuiteUnavailable, match="1 of 80 prompts of speed-qa"):
        loaded("speed-qa")
    monkeypatch.setenv("HF_TOKEN", GOOD_TOKEN)
    done = invoke("suites", "prepare", "speed")
    assert "HLE (gated): 1 of 1 filled" in done.stdout
    assert {p.prompt_id: p for p in loaded(partial=True).prompts}["stem-7"].texts() == ["Why?"]


def write_jsonl(folder: Path, config: str, rows: list[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shaped = [
        {k: v for k, v in r.items() if k != "turns"}
        | {"messages": [{"role": "user", "content": t} for t in r["turns"]]}
        for r in rows
    ]
    (folder / f"{config}.jsonl").write_bytes(jsonl(shaped))


def write_parquet(folder: Path, config: str, rows: list[Row]) -> None:
    (folder / config).mkdir(parents=True)
    (folder / config / "test.parquet").write_bytes(parquet(rows))


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_both_shapes_of_nvidias_scripts_are_taken_over_without_a_hub(
    invoke: Callable[..., Any], tmp_path: Path, write: Callable[[Path, str, list[Row]], None]
) -> None:
    HUB.broken = True
    write(tmp_path / "data", "qualitative", qualitative())
    done = invoke("suites", "prepare", "speed-code", "--from", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert "880 rows from" in done.stdout
    found = loaded("speed").prompts
    assert len(found) == 880
    assert found[0].follow_ups == ("and then?",)
    assert [p.prompt_id for p in loaded("speed-code").prompts] == [f"coding-{i}" for i in range(80)]


def test_throughput_rows_have_tiers(invoke: Callable[..., Any], tmp_path: Path) -> None:
    rows = [row(tier, i) for tier in TIERS for i in range(512)]
    write_parquet(tmp_path / "data", "throughput_2k", rows)
    invoke("suites", "prepare", "speed-throughput-2k", "--from", str(tmp_path / "data"))
    suite = catalog.suite_named("speed-throughput-2k")
    found = loaded(suite.name).prompts
    assert len(found) == 1536
    assert len(catalog.filtered(suite, found, (), "mixed")) == 512


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        ([], 3, "config qualitative has 880 rows, found 0"),
        ([{"question_id": "x"}], 2, "lacks turns or a category"),
        (None, 2, "holds neither qualitative.jsonl nor qualitative/test.parquet"),
    ],
)
def test_a_folder_that_is_not_what_the_script_wrote_is_refused(
    invoke: Callable[..., Any], tmp_path: Path, content: Any, code: int, why: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if content is not None:
        (folder / "qualitative.jsonl").write_text("".join(json.dumps(r) + "\n" for r in content))
    done = invoke("suites", "prepare", "speed", "--from", str(folder))
    assert done.returncode == code
    assert why in done.stderr


def test_a_row_of_another_shape_in_the_hub_names_the_row() -> None:
    serve("qualitative", [{"question_id": "x", "text": "?"} for _ in range(880)])
    with pytest.raises(ConfigError, match="row 0 is no row of SPEED-Bench"):
        loaded()
