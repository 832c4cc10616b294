"""Outputs against the baseline's, and the speedup that steps and acceptance predict."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from peagle_bench.analysis.estimate import draft_estimates
from peagle_bench.analysis.law import laws
from peagle_bench.analysis.lossless import first_difference, flagged, matches
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Cell
from peagle_bench.core.record import CellData, CounterDelta
from peagle_bench.core.result import CellResult
from peagle_bench.core.step import Step
from tests.analysis.test_compare import both, cell
from tests.conftest import cell_data, record, spec


def outputs(where: Cell, *ids: Sequence[int] | None, **kept: object) -> tuple[CellResult, CellData]:
    """A cell whose requests gave these token ids; None: the request failed."""
    records = [
        record(
            i,
            token_ids=None if x is None else tuple(x),
            output_digest=None if x is None else str(list(x)),
            error=None if x is not None else "reset",
            **kept,
        )
        for i, x in enumerate(ids)
    ]
    data = cell_data(records)
    return summarise(where, data, Terms(served_name="m"), {}), data


def test_the_share_of_equal_outputs_and_where_the_others_first_differ() -> None:
    results, data = both(
        outputs(cell("baseline"), [1, 2, 3], [4, 5, 6], [7, 8]),
        outputs(cell("peagle", 7), [1, 2, 3], [4, 9, 6], [7, 8, 9]),
    )
    (got,) = matches(results, data, {"s": True})
    assert (got.method, got.depth, got.equal, got.compared) == ("peagle", 7, 1, 3)
    assert got.share == pytest.approx(1 / 3)
    assert got.first_differences == (1, 2)


def test_the_baseline_is_compared_with_itself_on_another_server() -> None:
    results, data = both(
        outputs(cell("baseline"), [1, 2], [3, 4]),
        outputs(cell("baseline", repeat=2), [1, 2], [3, 5]),
    )
    (got,) = matches(results, data, {"s": True})
    assert (got.method, got.equal, got.compared) == ("baseline", 1, 2)


def test_an_invalid_cell_and_drawn_outputs_are_not_compared() -> None:
    failed, whole = outputs(cell("baseline"), [1, 2], None), outputs(cell("baseline"), [1, 2], [3])
    other = outputs(cell("peagle", 7), [1, 2], [3])
    assert failed[0].verdict.standing == "INVALID"
    assert matches(*both(failed, other), {"s": True}) == []
    assert matches(*both(whole, other), {"s": False}) == []
    assert len(matches(*both(whole, other), {"s": True})) == 1


def test_many_outputs_that_differ_are_flagged_and_few_are_not() -> None:
    same = [[i] for i in range(20)]
    for wrong, codes in ((1, set()), (3, {"outputs-differ"})):
        changed = [[99] if i < wrong else ids for i, ids in enumerate(same)]
        results, data = both(outputs(cell("baseline"), *same), outputs(cell("peagle", 7), *changed))
        _, got = flagged(results, matches(results, data, {"s": True}))
        assert {f.code for f in got.verdict.flags} - {"few-requests"} == codes


def test_digests_suffice_where_no_ids_are_kept() -> None:
    a, b = outputs(cell("baseline"), [1, 2]), outputs(cell("peagle", 7), [1, 3])
    for _, data in (a, b):
        object.__setattr__(data.records[0], "token_ids", None)
    results, held = both(a, b)
    (got,) = matches(results, held, {"s": True})
    assert (got.equal, got.compared, got.first_differences) == (0, 1, ())


@pytest.mark.parametrize(
    ("a", "b", "at"), [([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [5], 0), ([1, 2], [1, 2], 2)]
)
def test_the_first_difference_is_an_index_of_tokens(a: list[int], b: list[int], at: int) -> None:
    assert first_difference(a, b) == at


def stepping(
    where: Cell, gap_ms: float, per_step: int, *, probe_ms: float | None = None
) -> tuple[CellResult, CellData]:
    """One request whose every step gives `per_step` tokens after `gap_ms`."""
    depth = where.group.depth
    chunks = [(100 + gap_ms * i, 1 if i == 0 else per_step) for i in range(11)]
    drafts = spec(10, 10 * (per_step - 1), depth) if depth else None
    delta = CounterDelta(
        generation_tokens=sum(n for _, n in chunks),
        requests_finished=1,
        num_drafts=10 if depth else None,
        num_draft_tokens=10 * depth if depth else None,
        num_accepted_tokens=10 * (per_step - 1) if depth else None,
    )
    steps = () if probe_ms is None else tuple(
        Step(i, 1, 1 + (depth or 0), 0, 1 if depth else 0, depth or 0, 0.01, 0.001,
             0.002 if depth else None, probe_ms / 1e3)
        for i in range(10)
    )  # fmt: skip
    data = cell_data([record(0, chunks=chunks, spec=drafts)], delta=delta, depth=depth)
    object.__setattr__(data, "steps", steps)
    return summarise(where, data, Terms(served_name="m"), {}), data


def test_the_law_is_acceptance_times_the_ratio_of_steps() -> None:
    results, data = both(stepping(cell("baseline"), 10, 1), stepping(cell("peagle", 7), 15, 3))
    (law,) = laws(results, data)
    assert law.source == "chunk gaps"
    assert law.predicted == pytest.approx(3 * 10 / 15)
    assert law.measured == pytest.approx(2.0)
    assert law.gap == pytest.approx(0.0)


def test_the_probes_steps_are_a_source_of_their_own_and_a_gap_shows() -> None:
    results, data = both(
        stepping(cell("baseline"), 10, 1, probe_ms=10),
        stepping(cell("peagle", 7), 15, 3, probe_ms=12),
    )
    (law,) = laws(results, data)
    assert law.source == "probe"
    assert law.predicted == pytest.approx(3 * 10 / 12)
    assert law.gap == pytest.approx(2.0 / 2.5 - 1)


def test_without_a_baseline_there_is_no_law() -> None:
    results, data = both(stepping(cell("peagle", 7), 15, 3))
    assert laws(results, data) == []


def test_drafter_latency_from_outside_is_the_slope_over_k_less_the_parallel_methods() -> None:
    """A step costs 10 ms, 2 ms for each token verified, and EAGLE-3 drafts at 5 ms a token."""
    cells = [stepping(cell("eagle3", k), 10 + 2 * k + 5 * k, 2) for k in (1, 3, 5, 7)] + [
        stepping(cell("peagle", k), 10 + 2 * k + 6, 2) for k in (3, 5, 7)
    ]
    (got,) = draft_estimates(*both(*cells))
    assert (got.method, got.less) == ("eagle3", "peagle")
    assert got.per_draft_s == pytest.approx(0.005)
    assert got.error_s == pytest.approx(0.0, abs=1e-9)
    assert got.probe_per_draft_s is None


def test_two_depths_give_a_slope_without_an_error_and_one_gives_nothing() -> None:
    two = [stepping(cell("eagle3", k), 10 + 5 * k, 2, probe_ms=20) for k in (3, 7)]
    (got,) = draft_estimates(*both(*two))
    assert (got.per_draft_s, got.error_s, got.less) == (pytest.approx(0.005), None, None)
    assert got.probe_per_draft_s == pytest.approx(0.0)
    assert draft_estimates(*both(two[0])) == []
