"""A run with conversations, end to end on the calibration server; and privacy of traffic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_bench import conversations
from peagle_bench.bench import private
from peagle_bench.core.plan import Cell
from peagle_bench.core.record import CellData
from peagle_bench.core.suite import Message, Prompt
from peagle_bench.store import RunFolder
from tests.conftest import Cli, record

SECRET = "the patient is Zaphod Beeblebrox of Betelgeuse"


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """A ShareGPT file: three conversations of two turns."""
    rows = [
        {"id": f"t{i}", "conversations": [
            {"from": "human", "value": f"{SECRET} {i}"},
            {"from": "gpt", "value": "their reply"},
            {"from": "human", "value": "and then?"},
        ]}
        for i in range(3)
    ]  # fmt: skip
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(rows))
    return path


def measured(cli: Cli, talks: Path, *words: str, out: str = "run") -> dict[str, CellData]:
    done = cli(
        "run", "-p", "calibration", "--suite", str(talks), "-m", "eagle3,baseline", "-k", "3",
        "-c", "1", "--limit", "0", "--max-tokens", "12", "--out", out, *words,
    )  # fmt: skip
    assert (cli.cwd / out / "report.md").exists(), done.stdout + done.stderr
    folder = RunFolder(cli.cwd / out)
    return {c.group.method: folder.read_data(c) for c in folder.plan().cells}


def cells(cli: Cli, out: str = "run") -> dict[str, tuple[Cell, dict[str, Any]]]:
    folder = RunFolder(cli.cwd / out)
    return {c.group.method: (c, folder.read_facts(c)) for c in folder.plan().cells}


def prompt_digests(data: CellData) -> list[str | None]:
    return [r.prompt_token_digest for r in data.records]


def test_the_baselines_conversation_is_replayed_so_that_all_see_the_same_prompts(
    cli: Cli, talks: Path
) -> None:
    """The server is one whose speculation changes the reply: replayed turns agree all the same."""
    data = measured(cli, talks, "--server-flag", "lossy")
    assert len(data["baseline"].records) == 6
    assert prompt_digests(data["baseline"]) == prompt_digests(data["eagle3"])
    facts = {method: told for method, (_, told) in cells(cli).items()}
    assert facts["baseline"]["conversation"] == "spoken"
    assert facts["eagle3"]["conversation"] == "replayed"
    assert facts["baseline"]["replies_digest"] == facts["eagle3"]["replies_digest"]
    text = (cli.cwd / "run" / "report.md").read_text()
    assert "3 of 3 prompts, 6 turns" in text
    assert "spoken once and replayed to every other cell" in text
    assert "## Acceptance length by turn: talks" in text


def test_without_replay_a_method_that_answers_differently_is_flagged(cli: Cli, talks: Path) -> None:
    data = measured(cli, talks, "--server-flag", "lossy", "--no-replay-turns")
    first, second = (prompt_digests(data[m]) for m in ("baseline", "eagle3"))
    assert first[0::2] == second[0::2]
    assert first[1::2] != second[1::2]
    text = (cli.cwd / "run" / "report.md").read_text()
    assert "each spoke its own conversation" in text
    assert "every cell spoke its own conversations" in text


def everything_under(folder: Path) -> bytes:
    return b"\n".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def test_private_traffic_leaves_neither_prompts_nor_replies_in_the_run_folder(
    cli: Cli, talks: Path, cache: Path
) -> None:
    import pyarrow.parquet as pq

    measured(cli, talks)
    held = everything_under(cli.cwd / "run")
    assert SECRET.encode() not in held
    assert b"and then?" not in held
    for path in (cli.cwd / "run").rglob("requests.parquet"):
        rows = pq.read_table(path).to_pylist()
        assert all(r["text"] is None and r["token_ids"] is None for r in rows)
        assert all(r["output_digest"] for r in rows)
    assert not (cli.cwd / "run" / "conversations").exists()
    assert not list((cache / "conversations").glob("*"))  # forgotten once the run is whole


def test_keep_text_keeps_prompts_replies_and_the_conversation(cli: Cli, talks: Path) -> None:
    data = measured(cli, talks, "--keep-text")
    assert all(r.text for r in data["baseline"].records)
    prompts = [json.loads(line) for line in (cli.cwd / "run/prompts/talks.jsonl").open()]
    assert [p["prompt_id"] for p in prompts] == ["t0", "t1", "t2"]
    assert prompts[0]["messages"][0]["content"] == f"{SECRET} 0"
    assert prompts[0]["follow_ups"] == ["and then?"]
    assert (cli.cwd / "run" / "conversations" / "talks.json").exists()


def drop(cli: Cli, method: str) -> None:
    import shutil

    cell, _ = cells(cli)[method]
    shutil.rmtree(cli.cwd / "run" / "cells" / cell.slug)


def test_a_resumed_run_replays_what_was_spoken_before(cli: Cli, talks: Path) -> None:
    before = measured(cli, talks, "--server-flag", "lossy", "--keep-text")
    drop(cli, "eagle3")
    done = cli("run", "--out", "run", "--resume")
    assert "1 of 2 cells are whole already" in done.stdout
    folder = RunFolder(cli.cwd / "run")
    after = {c.group.method: folder.read_data(c) for c in folder.plan().cells}
    assert prompt_digests(after["eagle3"]) == prompt_digests(before["eagle3"])
    assert cells(cli)["eagle3"][1]["conversation"] == "replayed"


def test_where_private_replies_are_gone_a_resumed_run_speaks_anew(cli: Cli, talks: Path) -> None:
    """They were forgotten when the run was whole: keeping the baseline's cell would mix two."""
    measured(cli, talks, "--server-flag", "lossy")
    drop(cli, "eagle3")
    done = cli("run", "--out", "run", "--resume")
    assert "the replies that 1 cells were measured with are gone" in done.stdout.replace("\n", " ")
    facts = {method: told for method, (_, told) in cells(cli).items()}
    assert facts["baseline"]["conversation"] == "spoken"
    assert facts["eagle3"]["conversation"] == "replayed"
    assert facts["baseline"]["replies_digest"] == facts["eagle3"]["replies_digest"]


def test_a_conversation_with_a_failed_turn_is_not_replayed() -> None:
    prompts = [Prompt(prompt_id="a", messages=(Message(role="user", content="x"),),
                      follow_ups=("y",))]  # fmt: skip
    good = [record(0, prompt_id="a", turn=1, text="one"), record(1, prompt_id="a", turn=2)]
    assert conversations.spoken(prompts, good) == {"a": ("one",)}
    bad = [good[0], record(1, prompt_id="a", turn=2, error="reset")]
    assert conversations.spoken(prompts, bad) is None


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("HTTP 400: bad: PIN 4711", "HTTP 400 (what it says may quote the prompt; --keep-text"),
        ("server error in the stream: 'PIN 4711'", "server error in the stream (what it says"),
        ("unreadable event: not a JSON object: b'PIN 4711'", "unreadable event (what it says"),
        (
            "HTTP 400: This model's maximum context length is 2048 tokens, not PIN 4711",
            "HTTP 400 (maximum context length is 2048 tokens)",
        ),
        ("no response within 5 s", "no response within 5 s"),
    ],
)
def test_a_servers_own_words_are_not_kept_of_private_traffic(error: str, kept: str) -> None:
    """However short the quote: a name or a PIN is one too."""
    (found,) = private([record(0, error=error)])
    assert found.error is not None
    assert found.error.startswith(kept)
    assert "PIN" not in found.error


def test_the_log_of_a_private_runs_server_ends_where_prompts_begin(cli: Cli, talks: Path) -> None:
    measured(cli, talks)
    for log in (cli.cwd / "run" / "servers").rglob("server.log"):
        assert log.read_text().endswith("is not kept; --keep-text keeps it]\n")
    measured(cli, talks, "--keep-text", out="kept")
    for log in (cli.cwd / "kept" / "servers").rglob("server.log"):
        assert "is not kept" not in log.read_text()


def test_resume_refuses_prompts_that_changed_since_the_run_began(cli: Cli, talks: Path) -> None:
    measured(cli, talks)
    drop(cli, "eagle3")
    rows = json.loads(talks.read_text())
    talks.write_text(json.dumps([*rows, rows[0] | {"id": "new"}]))
    before = (cli.cwd / "run" / "report.md").read_text()
    done = cli("run", "--out", "run", "--resume")
    assert done.returncode == 2
    assert "the prompts of talks are not those" in done.stderr
    assert "its 1 whole cells" in done.stderr
    assert (cli.cwd / "run" / "report.md").read_text() == before


def test_resume_keeps_the_whole_suite_that_limit_0_asked_for(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q{i}"}) + "\n" for i in range(30)))
    words = ("run", "-p", "calibration", "-s", str(path), "-m", "baseline", "-c", "8")
    assert cli(*words, "--limit", "0", "--max-tokens", "4", "--out", "r").returncode == 0
    done = cli("run", "--out", "r", "--resume")
    assert "1 of 1 cells are whole already" in done.stdout
    assert RunFolder(cli.cwd / "r").plan().config.limit is None


Invoke = Callable[..., Any]


def test_show_and_dry_run_count_turns(invoke: Invoke, talks: Path) -> None:
    done = invoke("run", "-p", "calibration", "--suite", str(talks), "-c", "1", "-k", "3",
                  "--limit", "0", "--dry-run")  # fmt: skip
    assert "3 (6 turns)" in done.stdout
    assert "conversations are spoken once" in done.stdout.replace("\n", " ")
