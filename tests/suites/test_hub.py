"""The real `datasets` library against a hub on loopback, with rows made up in the true schemas."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.core.suite import HubSource, Suite
from peagle_bench.errors import ConfigError, SuiteUnavailable
from peagle_bench.suites import catalog, hub
from peagle_bench.suites.loaded import Loaded, LoadOptions
from tests.conftest import HUB
from tests.standin_hub import GOOD_TOKEN, STRANGER_TOKEN, jsonl, parquet

Row = dict[str, object]
pytestmark = pytest.mark.usefixtures("cache")


def card(**configs: str) -> bytes:
    """A README whose front matter names each config's files."""
    lines = ["---", "configs:"]
    for name, pattern in configs.items():
        split, path = pattern.split(":")
        lines += [f"- config_name: {name}", "  data_files:", f"  - split: {split}"]
        lines += [f"    path: {path}"]
    return "\n".join([*lines, "---", ""]).encode()


def revision_of(name: str) -> str:
    source = catalog.suite_named(name).hub
    assert source is not None and source.revision is not None
    return source.revision


def smaller(name: str, **fields: Any) -> Suite:
    """A shipped suite over fewer rows than the true data set has."""
    return catalog.suite_named(name).model_copy(update=fields)


def loaded(suite: Suite) -> Loaded:
    return catalog.load(suite, LoadOptions())


@pytest.fixture
def fresh() -> Iterator[Callable[[], str]]:
    """A data set id that no other test has cached."""
    made = iter(range(100))
    here = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split(" ")[0]
    name = "".join(c if c.isalnum() else "-" for c in here)[:60].strip("-")
    yield lambda: f"acme/{name}-{next(made)}"
    HUB.broken = False


def add(dataset: str, rows: list[Row], **fields: Any) -> None:
    files = {"README.md": card(default="test:data/test-*"), "data/test-0.parquet": parquet(rows)}
    HUB.add(dataset, files, **fields)


def suite_of(dataset: str, *words: str) -> Suite:
    return catalog.find_suite(",".join([f"hub:{dataset}", *words]))


# the shipped suites, each in its true schema


def test_gsm8k_is_a_sample_of_its_test_split_that_is_always_the_same() -> None:
    rows: list[Row] = [{"question": f"q{i}?", "answer": f"so #### {i}"} for i in range(1319)]
    HUB.add(
        "openai/gsm8k",
        {
            "README.md": card(main="test:main/test-*", socratic="test:socratic/test-*"),
            "main/test-00000-of-00001.parquet": parquet(rows),
            "socratic/test-00000-of-00001.parquet": parquet(rows[:1]),
        },
        revision=revision_of("gsm8k"),
    )
    first, second = (loaded(catalog.suite_named("gsm8k")) for _ in range(2))
    assert len(first.prompts) == 256
    assert first.prompts == second.prompts
    assert first.prompts[0].messages[0].content in {r["question"] for r in rows}
    assert first.facts["revision"] == revision_of("gsm8k")


def test_mt_bench_is_80_conversations_of_two_turns() -> None:
    rows: list[Row] = [
        {"prompt": [f"a{i}", f"b{i}"], "category": "writing", "reference": [], "prompt_id": 81 + i}
        for i in range(80)
    ]
    HUB.add(
        "HuggingFaceH4/mt_bench_prompts",
        {
            "README.md": card(default="train:data/train-*"),
            "data/train-00000-of-00001-67c6c9fef07685a3.parquet": parquet(rows),
        },
        revision=revision_of("mt-bench"),
    )
    found = loaded(catalog.suite_named("mt-bench")).prompts
    assert len(found) == 80
    assert found[0].prompt_id == "81"
    assert found[0].messages[0].content == "a0"
    assert found[0].follow_ups == ("b0",)
    assert found[0].category == "writing"


def test_magicoder_comes_from_json_lines_with_the_language_as_category() -> None:
    rows = [
        {"lang": "rust", "raw_index": i, "index": i, "seed": "s", "openai_fingerprint": "f",
         "problem": f"p{i}", "solution": "s"}
        for i in range(12)
    ]  # fmt: skip
    HUB.add(
        "ise-uiuc/Magicoder-OSS-Instruct-75K",
        {"data-oss_instruct-decontaminated.jsonl": jsonl(rows)},
        revision=revision_of("magicoder"),
    )
    found = loaded(smaller("magicoder", rows=12, sample=5)).prompts
    assert len(found) == 5
    assert {p.category for p in found} == {"rust"}
    evol = [{"instruction": f"i{i}", "response": "r"} for i in range(9)]
    HUB.add(
        "ise-uiuc/Magicoder-Evol-Instruct-110K",
        {"data-evol_instruct-decontaminated.jsonl": jsonl(evol)},
        revision=revision_of("magicoder-evol"),
    )
    found = loaded(smaller("magicoder-evol", rows=9, sample=None)).prompts
    assert [p.messages[0].content for p in found] == [f"i{i}" for i in range(9)]


def test_opencodeinstruct_is_drawn_from_a_stream_and_then_kept(cache: Path) -> None:
    rows = [
        {"id": f"id{i}", "input": f"write {i}", "output": "o", "domain": "generic",
         "generation_algorithm": "g", "llm_judgement": "j", "unit_tests": "u",
         "tests_execution_status": "t", "average_test_score": "1.0"}
        for i in range(300)
    ]  # fmt: skip
    HUB.add(
        "nvidia/OpenCodeInstruct",
        {
            "README.md": card(train="train:data/train-*"),
            "data/train-00000-of-00050.parquet": parquet(rows),  # type: ignore[arg-type]
        },
        revision=revision_of("opencodeinstruct"),
    )
    suite = catalog.suite_named("opencodeinstruct")
    first = loaded(suite)
    assert len(first.prompts) == 256
    assert catalog.is_here(suite)
    HUB.broken = True
    try:
        assert loaded(suite).prompts == first.prompts
    finally:
        HUB.broken = False


def test_humaneval_comes_from_the_hub_where_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[Row] = [
        {"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n", "canonical_solution": "",
         "test": "", "entry_point": f"f{i}"}
        for i in range(164)
    ]  # fmt: skip
    HUB.add(
        "openai/openai_humaneval",
        {
            "README.md": card(openai_humaneval="test:openai_humaneval/test-*"),
            "openai_humaneval/test-00000-of-00001.parquet": parquet(rows),
        },
        revision=revision_of("humaneval"),
    )
    monkeypatch.setattr("peagle_bench.suites.humaneval.human_eval_file", lambda: None)
    found = loaded(catalog.suite_named("humaneval-raw"))
    assert found.prompts[7].messages[0].content == "def f7():\n"
    assert found.facts["source"] == "hub openai/openai_humaneval"


# anybody's data set


def test_any_data_set_with_a_column_mapping_is_a_suite(fresh: Callable[[], str]) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one", "kind": "a", "n": 7}, {"ask": "two", "kind": "b", "n": 8}])
    found = loaded(suite_of(dataset, "prompt=ask", "category=kind", "id=n"))
    assert [(p.prompt_id, p.category, p.messages[0].content) for p in found.prompts] == [
        ("7", "a", "one"),
        ("8", "b", "two"),
    ]
    assert found.facts["revision"] == "0" * 39 + "1"


def test_messages_and_sharegpt_columns_are_understood(fresh: Callable[[], str]) -> None:
    dataset = fresh()
    add(
        dataset,
        [{"m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "old"}],
          "c": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                {"from": "human", "value": "c"}]}],
    )  # fmt: skip
    (chat,) = loaded(suite_of(dataset, "messages=m")).prompts
    assert [m.content for m in chat.messages] == ["hi"]
    (talk,) = loaded(suite_of(dataset, "conversations=c")).prompts
    assert talk.follow_ups == ("c",)


def test_a_column_that_is_not_there_lists_those_that_are(fresh: Callable[[], str]) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one", "kind": "a"}])
    with pytest.raises(ConfigError, match="has no column question; it has ask, kind"):
        loaded(suite_of(dataset, "prompt=question"))


# what can be wrong, and what to do


def test_a_gated_data_set_names_the_page_to_visit_and_the_token_opens_it(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one"}], gated=True)
    suite = suite_of(dataset, "prompt=ask")
    with pytest.raises(SuiteUnavailable) as caught:
        loaded(suite)
    assert "is gated and no HF_TOKEN is set" in str(caught.value)
    assert f"accept its terms at {HUB.url}/datasets/{dataset}" in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", STRANGER_TOKEN)
    with pytest.raises(SuiteUnavailable, match="this HF_TOKEN has no access"):
        loaded(suite)
    monkeypatch.setenv("HF_TOKEN", GOOD_TOKEN)
    assert len(loaded(suite).prompts) == 1


def test_a_token_that_is_no_token_says_so_and_is_not_printed(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one"}])
    monkeypatch.setenv("HF_TOKEN", "hf_expired_and_secret")
    with pytest.raises(SuiteUnavailable, match="does not take this HF_TOKEN") as caught:
        loaded(suite_of(dataset, "prompt=ask"))
    assert "hf_expired" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["revision=" + "f" * 40], "has no revision ffff"),
        (["split=nope"], "has no split nope"),
        (["config=nope"], "has no config nope"),
    ],
)
def test_what_the_data_set_lacks_is_named(
    fresh: Callable[[], str], words: list[str], why: str
) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one"}])
    with pytest.raises(SuiteUnavailable, match=why):
        loaded(suite_of(dataset, "prompt=ask", *words))


def test_an_unknown_data_set_is_named_with_its_page() -> None:
    with pytest.raises(SuiteUnavailable, match=r"acme/nowhere is not on http.*without HF_TOKEN"):
        loaded(suite_of("acme/nowhere", "prompt=ask"))


def test_a_hub_that_answers_503_is_told_from_one_that_is_not_there(
    fresh: Callable[[], str],
) -> None:
    HUB.broken = True
    with pytest.raises(SuiteUnavailable, match="is not in the cache, and .* answered HTTP 503"):
        loaded(suite_of(fresh(), "prompt=ask"))


def test_where_the_hub_fails_the_cache_serves_the_pinned_commit_and_no_other(
    fresh: Callable[[], str],
) -> None:
    dataset = fresh()
    one, two = "1" * 40, "2" * 40
    add(dataset, [{"ask": "first"}], revision=one)
    pinned = suite_of(dataset, "prompt=ask", f"revision={one}")
    assert loaded(pinned).prompts[0].messages[0].content == "first"
    HUB.broken = True
    assert loaded(pinned).prompts[0].messages[0].content == "first"
    HUB.broken = False
    add(dataset, [{"ask": "second"}], revision=two)
    other = suite_of(dataset, "prompt=ask", f"revision={two}")
    HUB.broken = True
    with pytest.raises(SuiteUnavailable, match="the cache holds .* at 111111111111, not at"):
        loaded(other)


def test_a_row_count_that_is_not_the_published_one_is_an_error(fresh: Callable[[], str]) -> None:
    source = HubSource(dataset="openai/gsm8k", config="main", revision=revision_of("gsm8k"))
    HUB.add(
        "openai/gsm8k",
        {"README.md": card(main="test:main/test-*"), "main/test-0.parquet": parquet([{"a": 1}])},
        revision="3" * 40,
    )
    suite = smaller("gsm8k", hub=source.model_copy(update={"revision": "3" * 40}))
    with pytest.raises(SuiteUnavailable, match="has 1319 rows, its source gave 1"):
        loaded(suite)


def process(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True
    )


LOAD = """
from peagle_bench.suites import catalog
from peagle_bench.suites.loaded import LoadOptions
try:
    print(len(catalog.load(catalog.find_suite({reference!r}), LoadOptions()).prompts))
except Exception as error:
    print(type(error).__name__, error)
"""


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_hub_out_of_reach_is_told_in_seconds_with_the_way_without_it(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    done = process(LOAD.format(reference="speed-code"), HF_ENDPOINT=url, HF_HOME=str(tmp_path))
    assert "SuiteUnavailable" in done.stdout, done.stderr
    assert "cannot be reached" in done.stdout
    assert "suites prepare speed-code --from PATH" in done.stdout
    assert "--suite code-mini needs no hub" in done.stdout


def test_offline_takes_what_is_cached_and_asks_nothing(
    fresh: Callable[[], str], tmp_path: Path
) -> None:
    dataset = fresh()
    add(dataset, [{"ask": "one"}])
    code = LOAD.format(reference=f"hub:{dataset},prompt=ask")
    home = str(tmp_path)
    missing = process(code, HF_HUB_OFFLINE="1", HF_HOME=home)
    assert "is not in the cache, and HF_HUB_OFFLINE is set" in missing.stdout
    assert process(code, HF_HOME=home).stdout.strip() == "1"
    asked = len(HUB.requests)
    assert process(code, HF_HUB_OFFLINE="1", HF_HOME=home).stdout.strip() == "1"
    assert len(HUB.requests) == asked


def test_prepare_takes_a_copy_from_this_machine_and_then_needs_no_hub(
    invoke: Callable[..., Any], tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / "gsm8k.jsonl"
    rows = [{"question": f"q{i}?", "answer": "x"} for i in range(1319)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = invoke("suites", "prepare", "gsm8k", "--from", str(path))
    assert done.returncode == 0, done.stderr
    assert "256 rows from" in done.stdout
    HUB.broken = True
    try:
        assert len(loaded(catalog.suite_named("gsm8k")).prompts) == 256
    finally:
        HUB.broken = False
    path.write_text(json.dumps({"other": 1}) + "\n")
    done = invoke("suites", "prepare", "gsm8k", "--from", str(path))
    assert done.returncode == 2
    assert "has no column question; it has other" in done.stderr


def test_a_suite_of_ones_own_cannot_be_prepared(invoke: Callable[..., Any]) -> None:
    done = invoke("suites", "prepare", "code-mini", "--from", "x.jsonl")
    assert done.returncode == 2
    assert "needs nothing prepared" in done.stderr
    assert hub.endpoint() == HUB.url


def test_a_suite_of_ones_own_never_takes_what_another_of_its_name_laid_by(
    invoke: Callable[..., Any], fresh: Callable[[], str], tmp_path: Path
) -> None:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps({"question": f"q{i}?"}) + "\n" for i in range(1319)))
    assert invoke("suites", "prepare", "gsm8k", "--from", str(path)).returncode == 0
    dataset = fresh()
    add(dataset, [{"question": "mine?"}])
    own = smaller("gsm8k", hub=HubSource(dataset=dataset), rows=None, sample=None)
    assert [p.messages[0].content for p in loaded(own).prompts] == ["mine?"]
