"""The command line as users run it, end to end, at the calibration server."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import Cli, Invoked

SMALL = ("run", "-p", "calibration", "-k", "3,7", "-c", "1,4", "--limit", "8", "--max-tokens", "32",
         "--warmup", "1", "--out", "r")  # fmt: skip
FOUR = (*SMALL, "-m", "baseline,peagle", "-k", "3", "-c", "1,2")
ONE = ("run", "-p", "calibration", "-m", "baseline", "-c", "1", "--limit", "4",
       "--max-tokens", "32", "--out", "r")  # fmt: skip


def cells(folder: Path) -> list[dict[str, str]]:
    with (folder / "cells.csv").open() as lines:
        return list(csv.DictReader(lines))


def servers_left(where: Path) -> list[psutil.Process]:
    """Calibration servers started in this folder that still live; other tests run beside."""
    mark = "peagle_bench.targets.calibration"
    return [
        p
        for p in psutil.process_iter(["cmdline", "status", "cwd"])
        if mark in (p.info["cmdline"] or [])
        and p.info["status"] != psutil.STATUS_ZOMBIE
        and p.info["cwd"] == str(where)
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One finished run: its folder and what was printed."""
    where = tmp_path_factory.mktemp("whole")
    os.environ["PEAGLE_BENCH_CACHE"] = str(where / "cache")
    done = Cli(where)(*SMALL)
    del os.environ["PEAGLE_BENCH_CACHE"]
    assert done.returncode == 0, done.stdout + done.stderr
    return where / "r", done.stdout


def test_a_run_ends_with_the_table_and_the_report(whole_run: tuple[Path, str]) -> None:
    folder, printed = whole_run
    assert "P-EAGLE" in printed
    assert "ESTIMATE" in printed
    assert {p.name for p in folder.iterdir()} >= {
        "manifest.json", "cells", "servers", "cells.csv", "report.md", "charts"
    }  # fmt: skip
    assert len(list((folder / "charts").glob("*.png"))) == 2
    assert len(list((folder / "charts").glob("*.svg"))) == 2


def test_the_report_recovers_the_calibration_servers_truth(whole_run: tuple[Path, str]) -> None:
    from peagle_bench.targets.calibration import Truth

    rows = {(r["method"], r["depth"], r["concurrency"]): r for r in cells(whole_run[0])}
    assert len(rows) == 10
    acceptance = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    for (method, depth, _), row in rows.items():
        truth = Truth(depth=int(depth or 0), parallel=method == "peagle", acceptance=acceptance)
        assert row["standing"] == "ESTIMATE"
        # Steps are paced on an absolute schedule: what is above it is the machine's lateness.
        assert float(row["chunk_gap_s_mean"]) == pytest.approx(truth.step_s, rel=0.10)
        if depth:
            # About 80 drafts: a standard error of some 0.15.
            assert float(row["acceptance_length"]) == pytest.approx(
                truth.expected_acceptance_length, abs=0.6
            )
            assert float(row["acceptance_length"]) == pytest.approx(
                float(row["acceptance_length_per_request"]), abs=1e-12
            )
        else:
            assert row["acceptance_length"] == ""


def test_peagle_drafts_in_one_pass_where_eagle3_pays_for_each(whole_run: tuple[Path, str]) -> None:
    rows = {(r["method"], r["depth"], r["concurrency"]): r for r in cells(whole_run[0])}

    def gap(method: str, depth: str) -> float:
        return float(rows[(method, depth, "1")]["chunk_gap_s_mean"])

    assert gap("eagle3", "7") - gap("eagle3", "3") == pytest.approx(0.004, rel=0.25)
    assert gap("peagle", "7") - gap("peagle", "3") == pytest.approx(0.0, abs=0.001)


def test_the_same_prompts_reach_every_method(whole_run: tuple[Path, str]) -> None:
    import pyarrow.parquet as pq

    seen = set()
    for path in (whole_run[0] / "cells").glob("*/requests.parquet"):
        seen.add(tuple(pq.read_table(path)["prompt_id"].to_pylist()))
    assert len(seen) == 1


def test_report_makes_everything_again_from_stored_records(
    whole_run: tuple[Path, str], cli: Cli
) -> None:
    import shutil

    copy = cli.cwd / "copy"
    shutil.copytree(whole_run[0], copy)
    for name in ("report.md", "cells.csv"):
        (copy / name).unlink()
    shutil.rmtree(copy / "charts")
    done = cli("report", "copy")
    assert done.returncode == 0, done.stderr
    assert (copy / "report.md").read_text() == (whole_run[0] / "report.md").read_text()
    assert (copy / "cells.csv").read_text() == (whole_run[0] / "cells.csv").read_text()
    for chart in (whole_run[0] / "charts").glob("*.svg"):
        assert (copy / "charts" / chart.name).read_bytes() == chart.read_bytes()


def test_charts_of_estimates_say_so_in_the_picture(whole_run: tuple[Path, str]) -> None:
    report = (whole_run[0] / "report.md").read_text()
    assert "> **ESTIMATE.**" in report
    # matplotlib draws text as glyph paths; its source stands in a comment.
    for chart in (whole_run[0] / "charts").glob("*.svg"):
        assert "<!-- ESTIMATE -->" in chart.read_text()


def test_the_manifest_holds_the_resolved_plan_and_no_secret(cli: Cli) -> None:
    done = cli(*ONE, env={"HF_TOKEN": "hf_verysecret", "OPENAI_API_KEY": "sk-verysecret"})
    assert done.returncode == 0, done.stderr
    manifest = json.loads((cli.cwd / "r" / "manifest.json").read_text())
    config = manifest["plan"]["config"]
    assert config["methods"] == ["baseline"]
    assert config["warmup"] == 2
    for path in (cli.cwd / "r").rglob("*"):
        if path.is_file():
            assert b"verysecret" not in path.read_bytes(), path


def test_a_dry_run_prints_the_plan_and_writes_nothing(cli: Cli) -> None:
    done = cli(*SMALL, "--dry-run")
    assert done.returncode == 0
    assert "5 server starts, 10 cells" in done.stdout
    assert list(cli.cwd.iterdir()) == []


def test_all_options_can_stand_in_one_file(cli: Cli) -> None:
    (cli.cwd / "c.yaml").write_text(
        "profile: calibration\nsuites: [humaneval]\nmethods: [ngram]\ndepths: [2]\n"
        "concurrency: [2]\nlimit: 4\nmax_tokens: 8\nwarmup: 0\n"
    )
    done = cli("run", "--config", "c.yaml", "--limit", "6", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "1 server start, 1 cell, 6 requests" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("run", "-s", "humanevil"), 2, "Did you mean 'humaneval'"),
        (("run", "-m", "peagel"), 2, "Did you mean 'peagle'"),
        (("run", "-p", "smol"), 2, "unknown profile 'smol'"),
        (("run", "-k", "three"), 2, "'three' is not a list of whole numbers"),
        (("run", "-k", "0"), 2, "--depths must be at least 1"),
        (("run", "-p", "calibration", "-c", "500"), 2, "can never be in flight"),
        (("run", "--nonsense"), 2, "No such option"),
        (("run", "--config", "none.yaml"), 2, "cannot read none.yaml"),
        (("run", "-p", "smollm2-135m", "--vllm-python", "/no/python"), 3, "cannot run"),
        (("run", "-p", "calibration", "-m", "medusa"), 2, "has no head for Medusa"),
        (("report", "none"), 2, "has no manifest.json"),
        (("run", "-p", "calibration", "--seed", "-1"), 2, "--seed"),
        (("run", "-p", "calibration", "--temperature", "inf"), 2, "--temperature"),
        (("run", "-p", "smollm2-135m", "--server-command", ""), 2, "--server-command is empty"),
        (("run", "-p", "smollm2-135m", "--server-command", "'open"), 2, "cannot be split"),
        (("run", "-p", "smollm2-135m", "--vllm-python", "/bin/echo"), 3, "does not run Python"),
        (("run", "-p", "calibration", "--server-flag", "=x"), 2, "is no server flag"),
        (("run", "-p", "calibration", "--server-flag", "api-key=sk-x"), 2, "like a secret"),
        (("run", "--resume", "--out", "none"), 2, "has no manifest.json"),
        (("run", "-p", "calibration", "--out", "x" * 300), 3, "cannot write"),
        (("run", "-p", "calibration", "--resume"), 2, "no run of this plan"),
        (("run", "-p", "calibration", "--out", "/proc/x"), 3, "cannot write /proc/x"),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_half_written(
    invoke: Callable[..., Invoked], tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    done = invoke(*words)
    assert (done.returncode, text in done.stderr + done.stdout) == (code, True), done
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir() if p.name not in ("cache",)] == []


def test_a_run_folder_is_never_overwritten(cli: Cli) -> None:
    assert cli(*ONE).returncode == 0
    before = (cli.cwd / "r" / "manifest.json").read_text()
    again = cli(*ONE)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert (cli.cwd / "r" / "manifest.json").read_text() == before


def test_a_server_that_fails_takes_only_its_own_cells(cli: Cli) -> None:
    # Every server dies at its 13th request: in the second cell of its group.
    done = cli(*SMALL, "--server-flag", "die-after=12", "-m", "baseline,peagle", "-k", "3")
    assert done.returncode == 1, done.stdout
    assert "told to die" in (cli.cwd / "r" / "servers" / "peagle-k3-r1" / "server.log").read_text()
    rows = cells(cli.cwd / "r")
    assert {(r["method"], r["concurrency"]) for r in rows} == {("baseline", "1"), ("peagle", "1")}
    report = (cli.cwd / "r" / "report.md").read_text()
    assert "**FAILED** P-EAGLE K=3" in report
    assert "FAILED |" in report
    assert servers_left(cli.cwd) == []


def test_failed_requests_make_the_cell_invalid_and_leave_it_out_of_charts(cli: Cli) -> None:
    done = cli(*ONE, "--limit", "40", "--max-tokens", "4", "--server-flag", "fail-share=0.3")
    assert done.returncode == 1
    (row,) = cells(cli.cwd / "r")
    assert row["standing"] == "INVALID"
    assert float(row["failed_requests"]) > 0
    assert list((cli.cwd / "r" / "charts").iterdir()) == []
    assert "**INVALID**" in (cli.cwd / "r" / "report.md").read_text()


def test_500_on_every_request_measures_nothing_and_exits_3(cli: Cli) -> None:
    done = cli(*ONE, "--server-flag", "fail-share=1")
    assert done.returncode == 3
    assert "every request failed; the first: HTTP 500: told to fail" in done.stdout
    assert not list((cli.cwd / "r" / "cells").glob("*"))


def wait_for(path: Path, pattern: str, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while len(list(path.glob(pattern))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_run_resume_keeps_whole_cells_and_no_server_is_left(
    cli: Cli, kind: signal.Signals
) -> None:
    running = cli.start(*FOUR)
    wait_for(cli.cwd / "r" / "cells", "[!.]*", 1)
    running.send_signal(kind)
    running.communicate(timeout=60)
    if kind != signal.SIGKILL:
        assert running.returncode == 130
        assert servers_left(cli.cwd) == []
    whole = {p.name: (p / "summary.json").stat().st_mtime_ns
             for p in (cli.cwd / "r" / "cells").glob("[!.]*")}  # fmt: skip
    assert len(whole) < 4
    again = cli("run", "--out", "r", "--resume")  # the run's own options
    assert again.returncode == 0, again.stdout + again.stderr
    assert "cells are whole already and kept" in again.stdout
    assert servers_left(cli.cwd) == []
    now = {p.name: (p / "summary.json").stat().st_mtime_ns
           for p in (cli.cwd / "r" / "cells").iterdir()}  # fmt: skip
    assert len(now) == 4
    assert {k: now[k] for k in whole} == whole


def test_resume_of_a_changed_plan_measures_only_what_is_new(cli: Cli) -> None:
    assert cli(*ONE).returncode == 0
    wider = [w if w != "1" else "1,2" for w in ONE]
    done = cli(*wider, "--resume")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 cells are whole already" in done.stdout
    assert {r["concurrency"] for r in cells(cli.cwd / "r")} == {"1", "2"}


def test_resume_without_out_finds_the_newest_run_of_the_plan(cli: Cli) -> None:
    words = ONE[:-2]
    assert cli(*words).returncode == 0
    done = cli(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 cells are whole already" in done.stdout
    assert len(list((cli.cwd / "results").iterdir())) == 1


def test_help_shows_examples_and_exit_codes(cli: Cli) -> None:
    text = cli("run", "--help").stdout
    assert "peagle-bench run --suite humaneval --methods baseline,eagle3,peagle" in text
    assert "Exit codes:" in text
    for option in ("--suite", "--methods", "--depths", "--concurrency", "--profile", "--limit",
                   "--max-tokens", "--temperature", "--seed", "--repeats", "--warmup", "--out",
                   "--resume", "--dry-run", "--yes", "--config", "--vllm-python"):  # fmt: skip
        assert option in text


def test_lists_name_what_ships(cli: Cli) -> None:
    assert "humaneval" in cli("suites").stdout
    assert "smollm2-135m" in cli("profiles").stdout


def test_an_invalid_run_is_never_called_done_and_its_report_says_why(cli: Cli) -> None:
    words = [w if w != "baseline" else "baseline,peagle" for w in ONE]
    done = cli(*words, "--limit", "30", "-k", "3", "--server-flag", "fail-share=0.4")
    assert done.returncode == 1
    assert "INVALID" in done.stdout
    assert "requests failed" in done.stdout
    report = (cli.cwd / "r" / "report.md").read_text()
    assert "No speedup stands: see the verdicts below." in report


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("depths: [[1]]", "whole numbers"),
        ("depths: [true]", "whole numbers"),
        ("concurrency: ['a']", "whole numbers"),
        ("depths: [99999999999999999999]", "makes no sense"),
        ("methods: [1]", "a list of names is wanted"),
        ("methods: {baseline: 1}", "a list of names is wanted"),
        ("suites: []", "the list is empty"),
        ("limit: many", "limit"),
        ("server_flags: 3", "name=value words or a mapping"),
        ("request_timeout: .inf", "request_timeout_s"),
        ("- a\n- b", "is not a mapping"),
        ("a: [", "cannot read"),
        ("\udcff", "cannot read"),
    ],
)
def test_whatever_stands_in_a_config_file_is_one_clear_error(
    invoke: Callable[..., Invoked], tmp_path: Path, text: str, error: str
) -> None:
    (tmp_path / "c.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    done = invoke("run", "-p", "calibration", "--config", "c.yaml", "--dry-run")
    assert done.returncode == 2, done.stdout + done.stderr
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_file_takes_the_command_lines_names_and_single_values(cli: Cli) -> None:
    (cli.cwd / "c.yaml").write_text(
        "profile: calibration\nsuite: humaneval\nmethods: peagle\ndepths: 2\nconcurrency: 2\n"
        "limit: 4\nrequest-timeout: 9\nserver-flag: [step-ms=2]\nwarmup: 0\n"
    )
    done = cli("run", "--config", "c.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "1 server start, 1 cell, 4 requests" in done.stdout
    (cli.cwd / "c.yaml").write_text("")
    assert cli("run", "-p", "calibration", "--config", "c.yaml", "--dry-run").returncode == 0


def test_a_second_ctrl_c_while_a_server_is_stopped_leaves_none_behind(
    cli: Cli, tmp_path: Path
) -> None:
    stub = tmp_path / "stub.sh"
    stub.write_text("#!/bin/sh\ntrap '' TERM INT\nwhile :; do sleep 0.2; done\n")
    stub.chmod(0o755)
    running = cli.start(
        "run", "-p", "gpt-oss-20b", "-m", "baseline", "-c", "1", "--limit", "2",
        "--server-command", str(stub), "--out", "r",
    )  # fmt: skip
    wait_for(cli.cwd / "r" / "servers", "*/server.log", 1)
    time.sleep(1)
    for _ in range(3):
        running.send_signal(signal.SIGINT)
        time.sleep(0.4)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130, out
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            assert str(stub) not in " ".join(process.info["cmdline"] or [])


def test_under_nohup_a_hang_up_is_ignored(cli: Cli) -> None:
    import subprocess
    import sys

    running = subprocess.Popen(
        ["nohup", sys.executable, "-m", "peagle_bench", *ONE],
        cwd=cli.cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_for(cli.cwd / "r" / "servers", "*/server.log", 1)
    running.send_signal(signal.SIGHUP)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0, out


def test_resume_with_an_option_goes_on_with_the_same_plan(cli: Cli) -> None:
    assert cli(*ONE).returncode == 0
    done = cli("run", "--out", "r", "--resume", "--ready-timeout", "30", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "calibration server" in done.stdout
    assert "1 of 1 cells are whole already" in done.stdout


def test_a_cell_that_cannot_be_read_is_named_and_measured_again_by_resume(cli: Cli) -> None:
    words = [w if w != "1" else "1,2" for w in ONE]
    assert cli(*words).returncode == 0
    broken = next((cli.cwd / "r" / "cells").glob("*-c1-*"))
    (broken / "requests.parquet").write_bytes(b"")
    report = cli("report", "r")
    assert report.returncode == 1
    assert "cannot be read" in report.stdout
    assert [r["concurrency"] for r in cells(cli.cwd / "r")] == ["2"]
    again = cli("run", "--out", "r", "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 of 2 cells are whole already" in again.stdout
    assert {r["concurrency"] for r in cells(cli.cwd / "r")} == {"1", "2"}


def test_a_run_that_goes_on_keeps_where_its_first_numbers_come_from(cli: Cli) -> None:
    import shutil

    words = [w if w != "1" else "1,2" for w in ONE]
    assert cli(*words).returncode == 0
    path = cli.cwd / "r" / "manifest.json"
    first = json.loads(path.read_text())["provenance"]
    shutil.rmtree(next((cli.cwd / "r" / "cells").glob("*-c2-*")))
    assert cli("run", "--out", "r", "--resume").returncode == 0
    second = json.loads(path.read_text())
    for name in ("started", "argv", "machine"):
        assert second["provenance"][name] == first[name]
    assert len(second["provenance"]["sessions"]) == 1
    second["provenance"]["machine"]["cpu"] = "another CPU"
    path.write_text(json.dumps(second))
    refused = cli("run", "--out", "r", "--resume")
    assert refused.returncode == 2
    assert "was begun with cpu another CPU" in refused.stderr


def test_two_runs_never_write_to_one_folder(cli: Cli) -> None:
    running = cli.start(*SMALL)
    wait_for(cli.cwd / "r" / "servers", "*/server.log", 1)
    second = cli("run", "--out", "r", "--resume")
    assert second.returncode == 2
    assert "another peagle-bench is writing to r" in second.stderr
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)


def test_a_server_that_hangs_is_given_up_after_a_few_requests(cli: Cli) -> None:
    began = time.monotonic()
    done = cli(*ONE, "--limit", "100", "--warmup", "0", "--request-timeout", "0.5",
               "--server-flag", "prefill-ms=60000")  # fmt: skip
    assert done.returncode == 3
    assert "every request failed; the first: no response within 0.5 s" in done.stdout
    assert time.monotonic() - began < 45


def test_files_that_are_no_run_are_never_overwritten(cli: Cli) -> None:
    (cli.cwd / "r").mkdir()
    (cli.cwd / "r" / "report.md").write_text("mine")
    done = cli(*ONE)
    assert done.returncode == 2
    assert "holds files that are no run" in done.stderr
    assert (cli.cwd / "r" / "report.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("manifest.json", "[]", 3),
        ("manifest.json", "3", 3),
        ("manifest.json", "{", 3),
        ("manifest.json", '{"schema": 1, "provenance": {}, "plan": {}}', 3),
        ("counters.json", "[]", 3),
        ("counters.json", '{"delta": {}, "client": {}, "concurrency": null}', 3),
        ("summary.json", "{", 3),
        ("command.json", '{"facts": [1]}', 0),
    ],
)
def test_a_damaged_folder_is_one_clear_error(
    whole_run: tuple[Path, str],
    invoke: Callable[..., Invoked],
    tmp_path: Path,
    name: str,
    content: str,
    code: int,
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(whole_run[0], copy)
    for path in copy.rglob(name):
        path.write_text(content)
    done = invoke("report", "copy")
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "a fault of peagle-bench" not in done.stderr


def test_a_report_that_cannot_be_written_still_prints_its_table(
    whole_run: tuple[Path, str], cli: Cli
) -> None:
    import shutil

    copy = cli.cwd / "copy"
    shutil.copytree(whole_run[0], copy)
    shutil.rmtree(copy / "charts")
    (copy / "charts").write_text("in the way")
    done = cli("report", "copy")
    assert done.returncode == 3
    assert "P-EAGLE" in done.stdout
    assert "cannot write copy/charts" in done.stderr


def test_what_was_not_measured_yet_is_pending_and_not_failed(cli: Cli) -> None:
    running = cli.start(*FOUR)
    wait_for(cli.cwd / "r" / "cells", "[!.]*", 1)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert "peagle-bench run --out r --resume" in out
    report = cli("report", "r")
    assert report.returncode == 1
    assert "PENDING" in report.stdout
    assert "FAILED" not in report.stdout


def test_a_closed_or_ascii_output_is_no_traceback(whole_run: tuple[Path, str], cli: Cli) -> None:
    done = cli("report", str(whole_run[0]), env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "P-EAGLE" in done.stdout


def test_score_runs_replies_in_a_sandbox_and_says_pass_at_1_beside_the_speed(cli: Cli) -> None:
    done = cli("run", "-p", "calibration", "-m", "baseline", "-c", "1", "--limit", "3",
               "--max-tokens", "8", "--score", "--unsafe-scoring", "--out", "r")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run in a sandbox of kind" in done.stdout
    (row,) = cells(cli.cwd / "r")
    assert float(row["pass_at_1"]) == 0.0
    report = (cli.cwd / "r" / "report.md").read_text()
    assert "## Accuracy of the outputs that were timed" in report
    assert "| humaneval | 1 | baseline | — | 0 | 3 | 0.0% [0.0," in report
    done = cli("run", "-p", "calibration", "-s", "code-mini", "-c", "1", "--score", "--dry-run")
    assert done.returncode == 2
    assert "there is no scorer for code-mini" in done.stderr


def test_drawn_outputs_are_said_not_to_be_compared_and_greedy_ones_are(cli: Cli) -> None:
    words = ("run", "-p", "calibration", "-m", "baseline,eagle3", "-k", "3", "-c", "1", "--limit",
             "4", "--max-tokens", "8")  # fmt: skip
    assert cli(*words, "--out", "greedy").returncode == 0
    text = (cli.cwd / "greedy" / "report.md").read_text()
    assert "| humaneval | 1 | EAGLE-3 | 3 | 4 | 4 | 100.0% | — |" in text
    assert cli(*words, "--server-flag", "lossy", "--out", "lossy").returncode == 0
    text = (cli.cwd / "lossy" / "report.md").read_text()
    assert "| humaneval | 1 | EAGLE-3 | 3 | 0 | 4 | 0.0% | 0, 0, 0, 0 |" in text
    assert "4 of 4 greedy outputs are not the baseline's" in text
    assert cli(*words, "--temperature", "0.7", "--out", "drawn").returncode == 0
    text = (cli.cwd / "drawn" / "report.md").read_text()
    assert "Outputs are drawn (humaneval at temperature 0.7) and not compared" in text
    assert "EAGLE-3 | 3 | 4 | 4 |" not in text


def test_merged_chunks_and_a_fuller_batch_show_as_what_they_are(cli: Cli) -> None:
    """Known truth: two steps a chunk, and 1 ms more a step for every other request in flight."""
    done = cli("run", "-p", "calibration", "-m", "baseline", "-c", "1,4", "--limit", "8",
               "--max-tokens", "33", "--server-flag", "merge=2", "--server-flag", "batch-ms=1",
               "--out", "r")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    one, four = sorted(cells(cli.cwd / "r"), key=lambda r: int(r["concurrency"]))
    for row, step_ms in ((one, 4.0), (four, 7.0)):
        # Tokens per chunk are counted, so time per token stays the step's.
        assert float(row["tpot_s_mean"]) == pytest.approx(step_ms / 1e3, rel=0.25)
        assert float(row["chunk_gap_s_mean"]) == pytest.approx(2 * step_ms / 1e3, rel=0.25)
        assert row["emitted_length"] == ""  # more than K + 1 tokens a chunk: not a step's
        assert "chunks-hold-steps" in row["findings"]


def test_merged_chunks_give_neither_a_law_nor_an_estimate_from_outside(cli: Cli) -> None:
    words = ("run", "-p", "calibration", "-m", "baseline,eagle3", "-k", "3,7", "-c", "1",
             "--limit", "4", "--max-tokens", "24")  # fmt: skip
    assert cli(*words, "--out", "plain").returncode == 0
    text = (cli.cwd / "plain" / "report.md").read_text()
    assert "## Drafter latency seen from outside" in text
    assert "## The law" in text
    assert cli(*words, "--server-flag", "merge=3", "--out", "merged").returncode == 0
    text = (cli.cwd / "merged" / "report.md").read_text()
    assert "## Drafter latency seen from outside" not in text
    assert "## The law" not in text


def test_numbers_of_an_invalid_row_stand_nowhere_but_struck_through(cli: Cli) -> None:
    done = cli(
        "run", "-p", "calibration", "-m", "baseline,eagle3", "-k", "3", "-c", "1", "--limit", "12",
        "--max-tokens", "8", "--server-flag", "fail-share=0.4", "--out", "r",
    )  # fmt: skip
    assert done.returncode == 1
    text = (cli.cwd / "r" / "report.md").read_text()
    assert text.count("~~") >= 8
    for part in ("Lossless", "Acceptance by draft position", "95 % intervals", "The law", "Peak"):
        assert f"## {part}" not in text


def test_a_run_without_a_baseline_says_so_and_still_compares_with_eagle3(cli: Cli) -> None:
    done = cli("run", "-p", "calibration", "-m", "eagle3,peagle", "-k", "3", "-c", "1", "--limit",
               "4", "--max-tokens", "8", "--repeats", "2", "--out", "r")  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (cli.cwd / "r" / "report.md").read_text()
    assert "No baseline was measured." in text
    assert "EAGLE-3 at the same K." in text
    assert re.search(r"\| P-EAGLE \| 3 \| [\d.,]+ \([\d.,]+ to [\d.,]+\) \|", text)
