from __future__ import annotations

import random

import pytest

from peagle_bench.analysis.compare import checked_together, prompts_agree, speedups
from peagle_bench.analysis.stats import (
    difference_interval,
    percentile,
    rate_interval,
    ratio_interval,
)
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.table import best_rows, build_rows
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Cell, Plan, RunConfig, ServerGroup
from peagle_bench.core.record import CellData, CounterDelta
from peagle_bench.core.result import CellResult
from tests.conftest import cell_data, record


def cell(method: str, depth: int | None = None, repeat: int = 1, c: int = 1) -> Cell:
    group = ServerGroup(method=method, depth=depth, repeat=repeat)
    return Cell(
        cell_id=f"{method}{depth}{repeat}{c}".encode().hex().ljust(64, "0"),
        group=group,
        suite="s",
        concurrency=c,
        num_prompts=4,
        num_requests=4,
        max_tokens=8,
    )


def made(
    where: Cell, ms_per_token: float, tokens: tuple[int, ...] = (10, 20, 30, 40)
) -> tuple[CellResult, CellData]:
    """A cell at C=1 whose requests take exactly so long."""
    records, at = [], 0.0
    for i, n in enumerate(tokens):
        end = at + n * ms_per_token
        records.append(record(i, chunks=((at + ms_per_token, 1), (end, n - 1)), sent_ms=at))
        at = end
    delta = CounterDelta(generation_tokens=sum(tokens))
    data = cell_data(records, delta=delta)
    return summarise(where, data, Terms(served_name="m"), {}), data


def both(*pairs: tuple[CellResult, CellData]) -> tuple[list[CellResult], dict[str, CellData]]:
    return [r for r, _ in pairs], {r.cell.cell_id: d for r, d in pairs}


def test_a_speedup_is_the_ratio_of_otps_and_its_interval_holds_it() -> None:
    results, data = both(made(cell("baseline"), 10), made(cell("peagle", 7), 5))
    (got,) = speedups(results, data, "baseline")
    assert got.speedup == pytest.approx(2.0)
    assert got.low is not None
    assert got.high is not None
    assert got.low <= got.speedup <= got.high
    assert got.prompts == 4


def test_against_eagle3_the_same_depth_is_taken() -> None:
    results, data = both(
        made(cell("eagle3", 3), 10), made(cell("eagle3", 7), 20), made(cell("peagle", 7), 5)
    )
    (got,) = speedups(results, data, "eagle3")
    assert (got.versus_depth, got.speedup) == (7, pytest.approx(4.0))


def test_without_the_same_depth_there_is_no_comparison() -> None:
    results, data = both(made(cell("eagle3", 3), 10), made(cell("peagle", 7), 5))
    assert speedups(results, data, "eagle3") == []


def test_repeats_are_pooled_as_tokens_over_seconds() -> None:
    results, data = both(
        made(cell("baseline", repeat=1), 10),
        made(cell("baseline", repeat=2), 30),
        made(cell("peagle", 7, repeat=1), 5),
        made(cell("peagle", 7, repeat=2), 5),
    )
    (got,) = speedups(results, data, "baseline")
    assert got.speedup == pytest.approx(20 / 5)


def test_a_comparison_is_no_better_than_its_worse_cell() -> None:
    base, data = made(cell("baseline"), 10)
    fast, fast_data = made(cell("peagle", 7), 5)
    invalid = fast.verdict.model_copy(update={"standing": "INVALID"})
    results = [base, fast.model_copy(update={"verdict": invalid})]
    (got,) = speedups(results, {base.cell.cell_id: data, fast.cell.cell_id: fast_data}, "baseline")
    assert got.standing == "INVALID"


def test_one_shared_prompt_gives_a_ratio_and_no_interval() -> None:
    results, data = both(made(cell("baseline"), 10, (8,)), made(cell("peagle", 7), 5, (8,)))
    (got,) = speedups(results, data, "baseline")
    assert got.speedup == pytest.approx(2.0)
    assert got.low is None


def test_servers_that_differ_make_every_cell_invalid_and_say_in_what() -> None:
    results, _ = both(made(cell("baseline"), 10), made(cell("peagle", 7), 5))
    servers = {"baseline-r1": {"dtype": "float16"}, "peagle-k7-r1": {"dtype": "bfloat16"}}
    for r in checked_together(results, servers):
        assert r.verdict.standing == "INVALID"
        assert "dtype (bfloat16, float16)" in r.verdict.reasons[-1].text


def test_what_only_one_server_tells_is_no_difference() -> None:
    results, _ = both(made(cell("baseline"), 10))
    assert checked_together(results, {"a": {"dtype": "x"}, "b": {}})[0].verdict.standing == "VALID"


def test_outputs_of_another_length_than_the_baselines_are_flagged() -> None:
    results, _ = both(made(cell("baseline"), 10), made(cell("peagle", 7), 5, (5, 10, 15, 20)))
    flagged = checked_together(results, {})[1].verdict.flags
    assert "lengths-differ" in {f.code for f in flagged}


def test_the_best_depth_is_chosen_among_rows_that_stand() -> None:
    config = RunConfig(
        profile="p", suites=("s",), methods=("peagle",), depths=(3, 7), concurrency=(1,)
    )
    cells = (cell("peagle", 3), cell("peagle", 7), cell("peagle", 5))
    plan = Plan(config=config, groups=tuple(c.group for c in cells), cells=cells)
    slow, fast = made(cells[0], 10)[0], made(cells[1], 5)[0]
    bad = fast.verdict.model_copy(update={"standing": "INVALID"})
    found = [slow, fast.model_copy(update={"verdict": bad})]
    assert build_rows(plan, found, [])[2].standing == "PENDING"
    rows = build_rows(plan, found, [], {cells[2].group.slug})
    assert [r.standing for r in rows] == ["VALID", "INVALID", "FAILED"]
    assert best_rows(rows)[("s", 1, "peagle")].depth == 3
    assert rows[2].output_tok_per_s is None


@pytest.mark.parametrize(("share", "count"), [(0.9, 64), (0.95, 130), (0.99, 662)])
def test_a_percentile_of_fewer_observations_than_it_needs_is_none(share: float, count: int) -> None:
    assert percentile([1.0] * (count - 1), share) is None
    assert percentile([1.0] * count, share) == 1.0


def test_percentiles_interpolate_between_order_statistics() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5


def test_the_95_percent_interval_covers_the_true_ratio_about_95_times_in_100() -> None:
    rng = random.Random(7)
    covered, runs = 0, 400
    for _ in range(runs):
        tokens, slow, fast = [], [], []
        for _ in range(40):
            n = rng.randint(20, 200)
            shared = rng.lognormvariate(0, 0.3)  # what makes a prompt slow for both methods
            tokens.append(float(n))
            slow.append(n * 0.02 * shared * rng.lognormvariate(-0.005, 0.1))
            fast.append(n * 0.01 * shared * rng.lognormvariate(-0.005, 0.1))
        interval = ratio_interval(
            tokens, fast, tokens, slow, resamples=1000, seed=rng.randrange(2**32)
        )
        assert interval is not None
        covered += interval[0] <= 2.0 <= interval[1]
    assert 0.93 <= covered / runs <= 0.97


def test_the_interval_of_a_difference_of_acceptance_lengths_covers_the_truth_as_often() -> None:
    """Drafts of a prompt are accepted at 1.5 by one method and 1.2 by the other on average; hard
    prompts are hard for both."""
    rng = random.Random(11)
    covered, runs = 0, 400
    for _ in range(runs):
        drafts_a, drafts_b, a, b = [], [], [], []
        for _ in range(40):
            shared = rng.gauss(0, 0.3)
            for drafts, accepted, level in ((drafts_a, a, 1.5), (drafts_b, b, 1.2)):
                n = float(rng.randint(10, 60))
                drafts.append(n)
                accepted.append(n * (level + shared + rng.gauss(0, 0.2)))
        interval = difference_interval(
            a, drafts_a, b, drafts_b, resamples=1000, seed=rng.randrange(2**32)
        )
        assert interval is not None
        covered += interval[0] <= 0.3 <= interval[1]
    assert 0.93 <= covered / runs <= 0.97


def test_a_mean_has_an_interval_of_its_own_and_one_value_has_none() -> None:
    rng = random.Random(5)
    covered, runs = 0, 1500  # enough that the share itself is known to 0.6 %
    for _ in range(runs):
        values = [rng.gauss(3, 1) for _ in range(40)]
        interval = rate_interval(values, [1.0] * 40, resamples=1000, seed=rng.randrange(2**32))
        assert interval is not None
        covered += interval[0] <= 3 <= interval[1]
    assert 0.93 <= covered / runs <= 0.97
    assert rate_interval([1.0], [1.0]) is None
    assert rate_interval([1.0, 1.0], [0.0, 0.0]) is None


def test_an_interval_of_exactly_equal_prompts_is_the_point() -> None:
    interval = ratio_interval([10.0] * 5, [1.0] * 5, [10.0] * 5, [2.0] * 5)
    assert interval == pytest.approx((2.0, 2.0))


def turns(where: Cell, *told: tuple[int, int, str]) -> tuple[CellResult, CellData]:
    """A cell of one conversation: (turn, prompt tokens, digest of the prompt's tokens) each."""
    records = [
        record(i, prompt_id="a", turn=t, prompt_tokens=n, prompt_token_digest=d)
        for i, (t, n, d) in enumerate(told)
    ]
    data = cell_data(records)
    return summarise(where, data, Terms(served_name="m"), {}), data


@pytest.mark.parametrize(
    ("second", "replayed", "code", "standing"),
    [
        ([(1, 10, "x"), (2, 20, "y")], True, None, "VALID"),
        ([(1, 11, "z"), (2, 20, "y")], True, "prompts-differ", "INVALID"),
        ([(1, 10, "x"), (2, 25, "z")], True, "prompts-differ", "INVALID"),
        ([(1, 10, "x"), (2, 25, "z")], False, "own-conversations", "VALID"),
        ([(1, 10, "z"), (2, 20, "y")], True, "prompts-differ-in-detail", "VALID"),
    ],
    ids=["the same", "first turn", "replayed turn", "spoken turn", "a date"],
)
def test_cells_that_did_not_see_the_same_prompts_say_so(
    second: list[tuple[int, int, str]], replayed: bool, code: str | None, standing: str
) -> None:
    results, data = both(
        turns(cell("baseline"), (1, 10, "x"), (2, 20, "y")), turns(cell("peagle", 7), *second)
    )
    for r in prompts_agree(results, data, replayed=replayed):
        assert r.verdict.standing == standing
        found = {f.code for f in (*r.verdict.reasons, *r.verdict.flags)} - {"few-requests"}
        assert found == ({code} if code else set())
