"""Which prompts a run asks: lengths, samples, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.core.suite import Message, Prompt
from peagle_bench.errors import ConfigError, TargetUnavailable
from peagle_bench.planning import resolve
from peagle_bench.selection import select, served_length, too_long
from peagle_bench.suites.catalog import find_suite
from peagle_bench.targets.tokenizer import TargetTokenizer
from tests.conftest import REAL_CACHE

Invoke = Callable[..., Any]


class Words:
    """Counts words; or has no tokenizer."""

    def __init__(self, there: bool = True) -> None:
        self.there, self.asked = there, 0

    def length(self, prompt: Prompt) -> int:
        self.asked += 1
        if not self.there:
            raise TargetUnavailable("none here")
        return sum(len(t.split()) for t in prompt.texts())


def prompt(name: str, words: int, *follow_ups: str, cap: int | None = None) -> Prompt:
    message = Message(role="user", content="word " * words)
    return Prompt(prompt_id=name, messages=(message,), follow_ups=follow_ups, max_tokens=cap)


@pytest.mark.parametrize(
    ("value", "length"),
    [(16384, 16384), ("16384", 16384), ("16k", 16000), ("16K", 16384), ("1.5K", 1536),
     ("auto", None), (-1, None), (None, None)],
)  # fmt: skip
def test_the_served_length_is_read_as_vllm_reads_it(value: Any, length: int | None) -> None:
    assert served_length({} if value is None else {"max-model-len": value}) == length


def test_prompts_that_fit_whatever_the_tokenizer_need_none() -> None:
    words = Words(there=False)
    assert too_long([prompt("a", 100)], 64, 2048, words) == {}  # type: ignore[arg-type]
    assert words.asked == 0
    with pytest.raises(TargetUnavailable):
        too_long([prompt("a", 1000)], 64, 2048, words)  # type: ignore[arg-type]


def test_a_prompt_is_too_long_with_its_replies_and_output() -> None:
    held = [
        prompt("fits", 1000),
        prompt("long", 2000),
        prompt("talk", 1000, "and then?", "and then?"),
        prompt("capped", 1980, cap=10),
    ]
    found = too_long(held, 400, 2048, Words())  # type: ignore[arg-type]
    assert found == {"long": (2000, 400), "talk": (1004, 1200)}


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    rows = [{"id": f"r{i}", "prompt": "a word " * (1200 if i == 2 else 3)} for i in range(5)]
    path = tmp_path / "traffic.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def dry(invoke: Invoke, *words: str) -> Any:
    return invoke("run", "--dry-run", "-p", "smollm2-135m", "-m", "baseline", "-c", "1",
                  "--max-tokens", "64", *words)  # fmt: skip


@pytest.fixture
def real_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded target's tokenizer, from the cache that `make setup` filled."""
    from peagle_bench.targets import embedded

    monkeypatch.setattr(embedded, "cached_folder", lambda: REAL_CACHE / "smollm2-135m")


@pytest.mark.usefixtures("real_tokenizer")
def test_a_prompt_that_does_not_fit_is_told_by_id_before_anything_starts(
    invoke: Invoke, traffic: Path
) -> None:
    done = dry(invoke, "--suite", str(traffic), "--limit", "0")
    assert done.returncode == 2
    assert "1 of 5 prompts of traffic do not fit into the served 2,048 tokens" in done.stderr
    assert "r2 (2,431 + 64)" in done.stderr
    assert "--skip-long" in done.stderr
    done = dry(invoke, "--suite", str(traffic), "--limit", "0", "--skip-long")
    assert done.returncode == 0, done.stderr
    done = dry(invoke, "--suite", str(traffic), "--limit", "0", "--server-flag",
               "max-model-len=4096")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_lengths_that_cannot_be_checked_are_said_to_be_unchecked(
    invoke: Invoke, traffic: Path
) -> None:
    """The test's own cache holds no converted target, so there is no tokenizer."""
    done = dry(invoke, "--suite", str(traffic), "--limit", "0")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "the lengths of traffic's prompts were not checked" in told
    assert "peagle-bench prepare" in told


def measured(cli: Any, traffic: Path, *words: str) -> str:
    done = cli("run", "-p", "calibration", "--suite", str(traffic), "-m", "baseline", "-c", "1",
               "--max-tokens", "4", "--out", "run", *words)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout) + (cli.cwd / "run" / "report.md").read_text()


def test_oversampling_is_done_only_when_asked_and_stamped(cli: Any, traffic: Path) -> None:
    told = measured(cli, traffic, "--limit", "12", "--oversample")
    assert "OVERSAMPLED: 12 prompts from 5" in told
    assert "> **OVERSAMPLED" in told
    assert "12 prompts, repeated from 5" in told
    done = cli("run", "-p", "calibration", "--suite", str(traffic), "-c", "1", "--limit", "12",
               "--dry-run")  # fmt: skip
    assert "has 5 prompts: --limit 12 takes them all" in " ".join(done.stdout.split())


def test_rows_left_out_for_their_length_are_stamped(traffic: Path) -> None:
    rows = [{"id": f"i{n}", "model": "m", "prompt": [5] * n} for n in (10, 4000)]
    traffic.write_text("".join(json.dumps(r) + "\n" for r in rows))
    config, profile, _ = resolve(
        {"profile": "smollm2-135m", "suites": (str(traffic),), "limit": 0, "skip_long": True}
    )
    found = select(find_suite(str(traffic)), config, profile, TargetTokenizer(profile))
    assert [p.prompt_id for p in found.prompts] == ["i10"]
    (stamp,) = found.stamps
    assert stamp.text.startswith("1 of 2 prompts do not fit into 2,048 tokens and were left out")
    longer = config.model_copy(update={"max_tokens": 2040})
    with pytest.raises(ConfigError, match=r"2 of 2 prompts .*: i10 \(10 \+ 2,040\), i4000"):
        select(find_suite(str(traffic)), longer, profile, TargetTokenizer(profile))


def test_random_tokens_say_in_table_report_and_chart_that_they_mislead(cli: Any) -> None:
    done = cli("run", "-p", "calibration", "--suite", "random", "-k", "3", "-c", "4", "--limit",
               "8", "--max-tokens", "8", "--out", "run")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "misleading for acceptance" in done.stdout
    assert "> **random token ids" in (cli.cwd / "run" / "report.md").read_text()
    for chart in (cli.cwd / "run" / "charts").glob("*.svg"):
        assert chart.stat().st_size > 1000
    from peagle_bench.store import RunFolder

    folder = RunFolder(cli.cwd / "run")
    (first, *_) = folder.plan().cells
    assert {r.prompt_tokens for r in folder.read_data(first).records} == {512}


def test_copies_among_ones_own_prompts_are_said(cli: Any, traffic: Path) -> None:
    rows = [{"id": i, "prompt": "the same"} for i in range(3)] + [{"id": 9, "prompt": "other"}]
    traffic.write_text("".join(json.dumps(r) + "\n" for r in rows))
    told = measured(cli, traffic, "--limit", "0")
    assert "2 of 4 prompts are copies of others" in told


def test_a_report_names_the_categories_that_were_asked(cli: Any, traffic: Path) -> None:
    rows = [{"prompt": f"q{i}", "category": "a|b" if i % 2 else None} for i in range(6)]
    traffic.write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = cli("run", "-p", "calibration", "-s", str(traffic), "-m", "eagle3", "-k", "3", "-c", "1",
               "--limit", "0", "--max-tokens", "12", "--out", "both")  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = (cli.cwd / "both" / "report.md").read_text()
    assert "| C | method | K | no category | a\\|b |" in report
    told = measured(cli, traffic, "--limit", "0", "--category", "a|b")
    assert "3 of 3 prompts (only a|b, out of 6)" in told


def test_a_category_that_is_not_there_is_a_usage_error(invoke: Invoke) -> None:
    done = dry(invoke, "--suite", "code-mini", "--category", "poetry")
    assert done.returncode == 2
    assert "none called poetry; it has coding (24)" in done.stderr
