"""The prompts that the heads are trained on, and the filter that keeps HumanEval out of them."""

from __future__ import annotations

import json
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import docstrings
import pytest
from build_prompts import SHARES, WRAPPER, build
from decontaminate import NGRAM_WORDS, Decontaminator, word_ngrams, words
from docstrings import function_prompts
from instructions import make_instruction
from tasks import make_task, render


@pytest.fixture(scope="session")
def filter_(humaneval: list[dict[str, str]]) -> Decontaminator:
    return Decontaminator(p["prompt"] + p["canonical_solution"] for p in humaneval)


@pytest.fixture(scope="session", autouse=True)
def few_sources() -> Iterator[None]:
    """Parsing every installed package takes half a minute: a few files of the library will do."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    names = ("statistics", "textwrap", "bisect", "heapq", "shutil", "fnmatch", "ast", "locale")
    patch = pytest.MonkeyPatch()
    patch.setattr(
        docstrings, "source_files", lambda: [("stdlib", stdlib / f"{name}.py") for name in names]
    )
    yield
    patch.undo()


@pytest.fixture(scope="session")
def built(filter_: Decontaminator) -> tuple[list[dict[str, str]], dict]:
    return build(seed=11, count=600, filter_=filter_)


# --- the filter ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Return a list", ["return", "a", "list"]),
        (">>> f([1, 2])", ["f", "1", "2"]),
        ("snake_case(x)", ["snake_case", "x"]),
        ("()[]{}!?", []),
    ],
)
def test_words_are_lower_cased_runs_of_letters_digits_and_underscores(text, expected):
    assert words(text) == expected


def test_ngrams_cover_every_window_and_short_texts_have_none():
    assert list(word_ngrams("a b c d", 3)) == [("a", "b", "c"), ("b", "c", "d")]
    assert list(word_ngrams("a b", 3)) == []


def test_every_humaneval_prompt_and_solution_is_rejected(humaneval, filter_):
    assert len(humaneval) == 164
    for problem in humaneval:
        assert not filter_.is_clean(problem["prompt"]), problem["task_id"]
        if len(words(problem["canonical_solution"])) >= NGRAM_WORDS:
            assert not filter_.is_clean(problem["canonical_solution"]), problem["task_id"]


def test_a_suite_message_with_a_humaneval_prompt_is_rejected(humaneval, filter_):
    for problem in humaneval[::20]:
        assert not filter_.is_clean(WRAPPER.format(prompt=problem["prompt"]))


def test_eight_shared_words_are_rejected_and_seven_are_not(humaneval, filter_):
    shared = words(humaneval[1]["prompt"])[6:14]
    assert len(shared) == NGRAM_WORDS
    assert filter_.overlap("zebra " + " ".join(shared) + " zebra") == tuple(shared)
    assert filter_.is_clean("zebra " + " ".join(shared[:-1]) + " zebra")


def test_case_and_punctuation_do_not_hide_an_overlap(humaneval, filter_):
    shared = words(humaneval[2]["prompt"])[8:18]
    assert not filter_.is_clean(" -- ".join(w.upper() for w in shared))


def test_boilerplate_is_not_exempt():
    filter_ = Decontaminator(["for i in range(len(xs)): for j in range(i)"])
    assert not filter_.is_clean("x = 1\nfor i in range(len(xs)):\n    for j in range(i):\n  pass")


# --- the prompts --------------------------------------------------------------------------------


def test_no_built_prompt_shares_an_8gram_with_humaneval(built, humaneval):
    rows, _ = built
    protected = {
        gram
        for p in humaneval
        for text in (p["prompt"], p["canonical_solution"])
        for gram in word_ngrams(text)
    }
    for row in rows:
        assert not protected & set(word_ngrams(row["message"])), row["id"]


def test_the_builder_drops_what_the_filter_rejects(filter_):
    everything = Decontaminator(["Reply with the whole function in one Python code block"])
    rows, manifest = build(seed=11, count=40, filter_=everything)
    assert {row["source"] for row in rows} == {"instructions"}
    assert manifest["dropped"]["shares_8gram_with_humaneval"] > 0


def test_the_same_seed_builds_the_same_prompts_and_another_seed_does_not(filter_):
    first, _ = build(seed=3, count=60, filter_=filter_)
    again, _ = build(seed=3, count=60, filter_=filter_)
    other, _ = build(seed=4, count=60, filter_=filter_)
    assert first == again
    assert {r["message"] for r in first} != {r["message"] for r in other}


def test_prompts_are_distinct_and_the_manifest_counts_them(built):
    rows, manifest = built
    assert len({row["message"] for row in rows}) == len(rows) == manifest["prompts"] == 600
    assert sum(manifest["kept_by_source"].values()) == 600
    tasks = manifest["kept_by_source"]["tasks"]
    assert abs(tasks / 600 - SHARES["tasks"]) < 0.1


def test_wrapped_prompts_use_the_wording_of_the_suite(built):
    pattern = re.compile(
        r"Complete the following Python function\. Reply with the whole function in one Python "
        r"code block\.\n\n```python\n.*def \w+\(.*\n```",
        re.DOTALL,
    )
    for row in built[0]:
        if row["source"] != "instructions":
            assert pattern.fullmatch(row["message"]), row["message"]


# --- real examples ------------------------------------------------------------------------------


def test_rendered_tasks_are_python_and_their_doctest_examples_hold():
    rng = random.Random(5)
    checked = 0
    for _ in range(300):
        task = make_task(rng)
        text = render(task, rng)
        compile(text, task.name, "exec")
        assert text.endswith(('"""\n', "'''\n"))
        for call, value in re.findall(r">>> (.+)\n    (.+)\n", text):
            assert eval(call, {task.name: task.function}) == eval(value), text
            checked += 1
    assert checked > 200


def test_a_docstring_becomes_summary_and_examples():
    source = '''
def double(x, times=1):
    """Double a number
    some times.

    A long explanation that is left out.

    >>> double(2)
    4
    """
    return x * 2 ** times

def _hidden(x):
    """Not offered, because its name is private, however long this is."""

def silent(x):
    return x
'''
    assert list(function_prompts(source)) == [
        'def double(x, times=1):\n    """Double a number\n    some times.\n\n'
        '    >>> double(2)\n    4\n    """\n'
    ]


def test_unparsable_sources_yield_nothing():
    assert list(function_prompts("def broken(:")) == []


def test_instructions_vary():
    rng = random.Random(1)
    assert len({make_instruction(rng) for _ in range(300)}) > 200


# --- the committed manifest ---------------------------------------------------------------------


def test_the_committed_manifest_describes_the_data(models: Path):
    manifest = json.loads((models / "training" / "manifest.json").read_text())
    for part in manifest["prompts"]:
        assert re.fullmatch(r"[0-9a-f]{64}", part["sha256"])
        assert sum(part["kept_by_source"].values()) == part["prompts"]
    assert manifest["replies"]["reply_tokens"] > 0
    assert manifest["replies"]["dropped_by_8gram_filter"] >= 0
