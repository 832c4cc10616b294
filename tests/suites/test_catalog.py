"""Names, variants, filters and samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.core.suite import Message, Prompt, prompts_digest
from peagle_bench.errors import ConfigError, UnknownName
from peagle_bench.suites.catalog import (
    canonical,
    drawn,
    filtered,
    find_suite,
    load,
    suite_named,
    suite_names,
)
from peagle_bench.suites.loaded import LoadOptions

SPEED = ("code", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay",
         "stem", "summarization", "writing")  # fmt: skip


def prompts(*categories: str) -> list[Prompt]:
    return [
        Prompt(prompt_id=f"p{i}", messages=(Message(role="user", content=f"q{i}"),), category=c)
        for i, c in enumerate(categories)
    ]


def test_every_suite_of_the_table_is_there_with_source_and_licence() -> None:
    expected = {"humaneval", "humaneval-raw", "speed", "mt-bench", "gsm8k", "magicoder",
                "opencodeinstruct", "code-mini", "random"}  # fmt: skip
    expected |= {f"speed-{c}" for c in SPEED}
    expected |= {f"speed-throughput-{k}k" for k in (1, 2, 8, 16, 32)}
    assert expected <= set(suite_names())
    for name in suite_names():
        suite = suite_named(name)
        assert suite.source and suite.license and suite.title
        if suite.hub is not None:
            assert suite.hub.revision is not None
            assert len(suite.hub.revision) == 40, name


def test_a_variant_is_its_family_with_some_fields_changed() -> None:
    family, variant = suite_named("speed"), suite_named("speed-throughput-8k")
    assert variant.hub is not None and family.hub is not None
    assert variant.hub.config == "throughput_8k"
    assert variant.hub.revision == family.hub.revision
    assert (family.rows, variant.rows) == (880, 1536)
    assert suite_named("speed-code").category == "coding"


@pytest.mark.parametrize(
    ("typed", "name"),
    [("SPEED_code", "speed-code"), ("speed-coding", "speed-code"), ("mtbench", "mt-bench"),
     ("HumanEval", "humaneval"), ("codemini", "code-mini")],
)  # fmt: skip
def test_a_name_may_be_typed_as_people_type_it(typed: str, name: str) -> None:
    assert canonical(typed) == name


def test_an_unknown_suite_names_the_near_match_and_the_other_ways() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'humaneval'"):
        suite_named("human-evil")
    with pytest.raises(ConfigError, match=r"may also be a path.*hub:owner/name"):
        find_suite("human-evil")
    with pytest.raises(ConfigError, match="no such file or folder"):
        find_suite("./nowhere.jsonl")


def test_code_mini_is_24_prompts_three_of_them_conversations() -> None:
    found = load(suite_named("code-mini"), LoadOptions()).prompts
    assert len(found) == 24
    assert sorted(p.num_turns for p in found) == [1] * 21 + [2, 2, 3]
    assert {p.category for p in found} == {"coding"}
    assert prompts_digest(found) == (
        "a4efe02589af8fa25a2e0bbd47605c50838af7879b9e13e0422187c2d93dbd65"
    )


def test_random_is_the_same_ids_for_the_same_vocabulary_and_is_stamped() -> None:
    suite = suite_named("random")
    options = LoadOptions(vocabulary=lambda: range(100, 200))
    first, second = load(suite, options), load(suite, options)
    assert first.prompts == second.prompts
    assert len(first.prompts) == 64
    for prompt in first.prompts:
        assert isinstance(prompt.completion, tuple)
        assert len(prompt.completion) == 512
        assert set(prompt.completion) <= set(range(100, 200))
    assert "misleading for acceptance" in first.stamps[0].text


def test_a_category_that_is_not_there_is_an_error_that_lists_what_is() -> None:
    held = prompts("math", "math", "qa")
    suite = suite_named("speed")
    assert [p.prompt_id for p in filtered(suite, held, ["QA"], None)] == ["p2"]
    with pytest.raises(ConfigError, match=r"none called Poetry; it has math \(2\), qa \(1\)"):
        filtered(suite, held, ["qa", "Poetry"], None)


def test_a_tier_belongs_to_suites_that_have_tiers() -> None:
    held = prompts("low_entropy", "mixed")
    suite = suite_named("speed-throughput-1k")
    assert [p.prompt_id for p in filtered(suite, held, (), "mixed")] == ["p1"]
    with pytest.raises(ConfigError, match="has the tiers low_entropy, mixed, high_entropy"):
        filtered(suite, held, (), "medium")
    with pytest.raises(ConfigError, match="humaneval has no tiers"):
        filtered(suite_named("humaneval"), held, (), "mixed")
    with pytest.raises(ConfigError, match="no prompt of .* is left"):
        filtered(suite, held, ["mixed"], "low_entropy")


def test_a_limit_draws_distinct_prompts_that_the_seed_decides() -> None:
    held = prompts(*"x" * 100)
    a, b, other = drawn(held, 20, 0, False), drawn(held, 20, 0, False), drawn(held, 20, 1, False)
    assert a == b != other
    ids = [p.prompt_id for p in a]
    assert len(set(ids)) == 20
    order = [p.prompt_id for p in held]
    assert ids == sorted(ids, key=order.index)


def test_a_limit_above_the_suite_repeats_a_prompt_only_when_asked() -> None:
    held = prompts(*"xyz")
    assert len(drawn(held, 8, 0, False)) == 3
    ids = [p.prompt_id for p in drawn(held, 8, 0, True)]
    assert ids == ["p0", "p1", "p2", "p0#2", "p1#2", "p2#2", "p0#3", "p1#3"]


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("hub:a/b", "name exactly one of prompt"),
        ("hub:a/b,prompt=x,turns=y", "name exactly one of prompt"),
        ("hub:a/b,colour=red", "unknown colour"),
        ("hub:a/b,prompt", "is no name=value"),
        ("hub:a/b,prompt=x,split=train,split=test", "split is given twice"),
        ("hub:,prompt=x", "owner/name"),
        ("hub:solo,prompt=x", "owner/name"),
    ],
)
def test_a_hub_reference_that_is_not_whole_says_what_is_missing(reference: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        find_suite(reference)


def test_list_shows_every_suite_and_show_its_size_digest_lengths_and_licence(
    invoke: Callable[..., Any],
) -> None:
    listed = invoke("suites", "list").stdout
    assert invoke("suites").stdout == listed
    for name in suite_names():
        assert name in listed
    shown = invoke("suites", "show", "humaneval", "-p", "calibration").stdout
    assert "164 prompts (164 chat)" in shown
    assert "MIT (OpenAI)" in shown
    assert "bytes: 225 to 1,470" in shown
    digest = prompts_digest(load(suite_named("humaneval"), LoadOptions()).prompts)
    assert digest in shown


def test_a_suites_yaml_with_a_wrong_field_or_loader_is_one_clear_error(tmp_path: Path) -> None:
    base = "name: x\nversion: '1'\ntitle: x\nsource: x\nlicense: x\nhub: {dataset: a/b}\n"
    path = tmp_path / "x.yaml"
    path.write_text(base + "colour: red\n")
    with pytest.raises(ConfigError, match="is no suite: colour"):
        find_suite(str(path))
    path.write_text(base + "loader: nowhere\n")
    with pytest.raises(ConfigError, match="there is no loader 'nowhere'"):
        load(find_suite(str(path)), LoadOptions())
