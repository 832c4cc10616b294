"""Traffic of one's own on a real vLLM: Data Capture, a ShareGPT file, token ids; with P-EAGLE."""

from __future__ import annotations

import json
import os

import pytest

from peagle_bench.core.plan import Cell
from peagle_bench.core.record import CellData
from peagle_bench.reporting import Reported, analyse
from peagle_bench.store import RunFolder
from tests.conftest import Cli
from tests.suites.test_own_traffic import CHAT, capture, lines

pytestmark = pytest.mark.vllm

SECRET = "the harbour master of Innsmouth"
Held = dict[tuple[str, str], tuple[Cell, CellData]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Reported]:
    """baseline and P-EAGLE at K=3, C=1, on three suites."""
    where = tmp_path_factory.mktemp("traffic")
    history = {"messages": [
        {"role": "user", "content": f"I am {SECRET}. What is a mutex?"},
        {"role": "assistant", "content": "A lock."},
        {"role": "user", "content": "Show one in Go."},
    ]}  # fmt: skip
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    hour = where / "capture/endpoint/AllTraffic/2026/11/30"
    lines(
        hour / "08/a.jsonl",
        capture(CHAT | {"tools": [tool]}, "e1", "2026-11-30T08:00:00Z"),
        capture({"prompt": "def f(n):\n", "max_tokens": 9}, "e2", "2026-11-30T08:01:00Z", "JSON"),
        capture("1,2", "csv", "2026-11-30T08:02:00Z", "CSV"),
    )
    lines(hour / "09/b.jsonl", capture(history, "e3", "2026-11-30T09:00:00Z"))
    talks = [
        {"id": f"t{i}", "conversations": [{"from": "human", "value": a},
                                          {"from": "human", "value": b}]}
        for i, (a, b) in enumerate([("Write a haiku about rain.", "Now about snow."),
                                    ("Name three sorts.", "Which is stable?")])
    ]  # fmt: skip
    (where / "talks.json").write_text(json.dumps(talks))
    done = Cli(where)(
        "run", "-p", "smollm2-135m", "-m", "baseline,peagle", "-k", "3", "-c", "1",
        "--suite", "capture", "--suite", "talks.json", "--suite", "random", "--limit", "3",
        "--max-tokens", "24", "--warmup", "1", "--out", "run",
        timeout=1400, env={k: v for k, v in os.environ.items() if k != "PEAGLE_BENCH_CACHE"},
    )  # fmt: skip
    folder = RunFolder(where / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, analyse(folder)


@pytest.fixture(scope="module")
def held(run: tuple[RunFolder, Reported]) -> Held:
    """By suite and method."""
    folder, reported = run
    return {(c.suite, c.group.method): (c, folder.read_data(c)) for c in reported.plan.cells}


def test_every_cell_is_valid_and_renders_as_the_tokenizer_does(
    run: tuple[RunFolder, Reported],
) -> None:
    folder, reported = run
    assert [r.standing for r in reported.rows] == ["VALID"] * 6
    for cell in reported.plan.cells:
        assert folder.read_facts(cell)["rendering"] == "equal"


def test_chat_and_completions_of_a_capture_are_sent_as_they_were(held: Held) -> None:
    _, data = held[("capture", "baseline")]
    records = {r.prompt_id: r for r in data.records}
    assert list(records) == ["e1", "e2", "e3"]
    assert records["e2"].completion_tokens is not None
    assert records["e2"].completion_tokens <= 9
    # no template around raw text: the few tokens of `def f(n):`, not the thirty of a chat
    assert (records["e2"].prompt_tokens or 0) < 10 < (records["e1"].prompt_tokens or 0)


def test_every_turn_of_both_methods_had_the_same_prompt_tokens(held: Held) -> None:
    for suite in ("capture", "talks", "random"):
        base, spec = (
            {(r.prompt_id, r.turn): r.prompt_token_digest for r in held[(suite, m)][1].records}
            for m in ("baseline", "peagle")
        )
        assert base == spec
        assert None not in base.values()


def test_a_conversations_second_prompt_holds_the_first_and_its_reply(held: Held) -> None:
    _, data = held[("talks", "peagle")]
    assert [r.turn for r in data.records] == [1, 2, 1, 2]
    for first, second in ((0, 1), (2, 3)):
        one, two = data.records[first], data.records[second]
        assert (two.prompt_tokens or 0) > (one.prompt_tokens or 0) + (one.completion_tokens or 0)


def test_token_ids_reach_the_model_as_they_were_drawn_and_replies_have_one_length(
    held: Held,
) -> None:
    for method in ("baseline", "peagle"):
        _, data = held[("random", method)]
        assert {r.prompt_tokens for r in data.records} == {512}
        assert {r.completion_tokens for r in data.records} == {24}


def test_acceptance_is_told_by_turn(run: tuple[RunFolder, Reported]) -> None:
    _, reported = run
    (row,) = (r for r in reported.rows if (r.suite, r.method) == ("talks", "peagle"))
    assert set(row.by_turn) == {1, 2}
    assert all(1 <= v <= 4 for v in row.by_turn.values())


def test_no_text_of_the_traffic_is_left_in_the_run_folder(
    run: tuple[RunFolder, Reported],
) -> None:
    """Server logs included."""
    folder, _ = run
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
