"""`calibrate`: figures beside the server's own record of them."""

from __future__ import annotations

from tests.conftest import Cli


def test_calibrate_prints_truth_measured_and_error_of_each_figure(cli: Cli) -> None:
    """Acceptance is exact; times are this machine's and only looked at."""
    done = cli("calibrate", "-c", "1,4", "--requests", "6", "--max-tokens", "16")
    assert done.returncode in (0, 1), done.stderr
    out = done.stdout
    assert "ESTIMATE — CALIBRATION SERVER" in out
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    metrics = {row[2].split(" ")[0] for row in rows}
    assert metrics == {
        "output_tok_per_s", "ttft_s_p50", "tpot_s_p50", "acceptance_length", "draft_s_est",
    }  # fmt: skip
    for row in rows:
        if row[2].startswith("acceptance_length"):
            assert (row[3], row[5], row[6]) == (row[4], "+0.00%", "ok")
        if row[2].startswith("output_tok_per_s"):
            assert abs(float(row[5].rstrip("%"))) < 20
    assert {row[0] for row in rows} == {"1", "4"}
    assert {row[1] for row in rows} >= {"baseline", "EAGLE-3 K=7", "P-EAGLE K=3"}


def test_an_argument_that_is_no_list_of_whole_numbers_is_a_usage_error(cli: Cli) -> None:
    for words in (("-c", "a"), ("-c", "1.5"), ("-c", ""), ("-c", "0")):
        done = cli("calibrate", *words)
        assert done.returncode == 2, done.stdout + done.stderr
