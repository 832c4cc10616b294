from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.core.suite import Prompt, prompts_digest
from peagle_bench.errors import SuiteUnavailable
from peagle_bench.suites import catalog, humaneval
from peagle_bench.suites.loaded import LoadOptions


def prompts(name: str = "humaneval") -> list[Prompt]:
    return list(catalog.load(catalog.suite_named(name), LoadOptions()).prompts)


def test_humaneval_is_164_problems_asked_with_the_recorded_wording() -> None:
    found = prompts()
    assert len(found) == 164
    first = found[0]
    assert first.prompt_id == "HumanEval/0"
    (message,) = first.messages
    assert message.role == "user"
    assert message.content is not None
    assert message.content.startswith("Complete the following Python function.")
    assert "def has_close_elements" in message.content
    assert message.content.endswith('"""\n```')


def test_the_raw_variant_sends_the_bare_prompt_and_has_another_digest() -> None:
    raw = prompts("humaneval-raw")
    assert str(raw[0].messages[0].content).startswith("from typing import List")
    assert prompts_digest(raw) != prompts_digest(prompts())


def test_a_prompt_with_braces_is_not_taken_for_a_template() -> None:
    for prompt in prompts():
        assert "{prompt}" not in str(prompt.messages[0].content)


def test_the_digest_of_humaneval_is_pinned() -> None:
    assert prompts_digest(prompts()) == (
        "91879e16f00774c4c688d8f4ec760d555eec0f1779443fa602f823db16d85435"
    )


def test_a_copy_of_ones_own_goes_before_the_package_and_must_have_164_rows(
    cache: Path, tmp_path: Path
) -> None:
    path = tmp_path / "HumanEval.jsonl"
    rows = [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n"} for i in range(164)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    suite = catalog.suite_named("humaneval-raw")
    catalog.prepare(suite, path, LoadOptions())
    assert prompts("humaneval-raw")[0].messages[0].content == "def f0():\n"
    path.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(SuiteUnavailable, match="has 164 rows, its source gave 1"):
        catalog.prepare(suite, path, LoadOptions())


def test_prepared_rows_that_were_changed_are_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "HumanEval.jsonl"
    rows = [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n"} for i in range(164)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    catalog.prepare(catalog.suite_named("humaneval"), path, LoadOptions())
    held = cache / "suites" / humaneval.KEPT_AS / "rows.jsonl"
    held.write_text(held.read_text().replace("f7", "g7"))
    with pytest.raises(SuiteUnavailable, match="is not what was prepared"):
        prompts()
