from __future__ import annotations

import pytest

from peagle_bench.core.suite import prompts_digest
from peagle_bench.errors import UnknownName
from peagle_bench.suites.catalog import load_prompts, select, suite_named


def test_humaneval_is_164_problems_asked_with_the_recorded_wording() -> None:
    prompts = load_prompts(suite_named("humaneval"))
    assert len(prompts) == 164
    first = prompts[0]
    assert first.prompt_id == "HumanEval/0"
    (message,) = first.messages
    assert message.role == "user"
    assert message.content.startswith("Complete the following Python function.")
    assert "def has_close_elements" in message.content
    assert message.content.endswith('"""\n```')


def test_the_raw_variant_sends_the_bare_prompt_and_has_another_digest() -> None:
    raw = load_prompts(suite_named("humaneval-raw"))
    assert raw[0].messages[0].content.startswith("from typing import List")
    asked = load_prompts(suite_named("humaneval"))
    assert prompts_digest(tuple(raw)) != prompts_digest(tuple(asked))


def test_a_prompt_with_braces_is_not_taken_for_a_template() -> None:
    for prompt in load_prompts(suite_named("humaneval")):
        assert "{prompt}" not in prompt.messages[0].content


def test_the_digest_of_humaneval_is_pinned() -> None:
    digest = prompts_digest(tuple(load_prompts(suite_named("humaneval"))))
    assert digest == "c08a5a2a97106718e70c74cb7cd2042c58662f6a30848d1b7743f675c1def9e1"


def test_a_limit_draws_distinct_prompts_that_the_seed_decides() -> None:
    prompts = load_prompts(suite_named("humaneval"))
    a, b, other = select(prompts, 20, 0), select(prompts, 20, 0), select(prompts, 20, 1)
    assert a == b != other
    ids = [p.prompt_id for p in a]
    assert len(set(ids)) == 20
    order = [p.prompt_id for p in prompts]
    assert ids == sorted(ids, key=order.index)


def test_a_limit_above_the_suite_never_repeats_a_prompt() -> None:
    prompts = load_prompts(suite_named("humaneval"))
    assert len(select(prompts, 1000, 0)) == 164


def test_an_unknown_suite_names_the_near_match() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'humaneval'"):
        suite_named("human-evil")
