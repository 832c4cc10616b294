from __future__ import annotations

import pytest

from peagle_bench.analysis.validity import Terms, verdict
from peagle_bench.core.record import CounterDelta
from peagle_bench.core.result import Finding
from peagle_bench.core.step import Step
from peagle_bench.load.loops import loops_at_end
from tests.conftest import cell_data, record, spec

TERMS = Terms(served_name="m")


def codes(data: object, terms: Terms = TERMS) -> set[str]:
    return {f.code for f in verdict(data, terms).reasons}  # type: ignore[arg-type]


def flags(data: object, terms: Terms = TERMS) -> set[str]:
    return {f.code for f in verdict(data, terms).flags}  # type: ignore[arg-type]


def speculating(**changes: object) -> object:
    """Two requests at K=3 whose counters agree with them."""
    records = [record(0, spec=spec(10, 15, 3)), record(1, spec=spec(10, 9, 3))]
    delta = CounterDelta(
        num_drafts=20,
        num_draft_tokens=60,
        num_accepted_tokens=24,
        accepted_per_pos=(14, 7, 3),
        generation_tokens=6,
        requests_finished=2,
    ).model_copy(update=changes)
    return cell_data(records, delta=delta, depth=3)


def test_a_cell_whose_sources_agree_is_valid() -> None:
    assert verdict(speculating(), TERMS).standing == "VALID"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"accepted_per_pos": (14.0, 7.0, 2.0)}, "identity"),
        ({"num_accepted_tokens": 25.0, "accepted_per_pos": (14.0, 8.0, 3.0)}, "other-traffic"),
        ({"num_drafts": 21.0}, "other-traffic"),
        ({"generation_tokens": 7.0}, "other-traffic"),
        ({"generation_tokens": None}, "counters"),
        ({"prefix_cache_hits": 16.0}, "prefix-cache"),
        ({"problems": ("num_drafts went down",)}, "counters"),
        ({"num_drafts": None, "num_accepted_tokens": None}, "no-drafts"),
    ],
)
def test_sources_that_disagree_make_a_cell_invalid(changes: dict[str, object], code: str) -> None:
    data = speculating(**changes)
    assert verdict(data, TERMS).standing == "INVALID"  # type: ignore[arg-type]
    assert code in codes(data)


def test_a_failed_request_makes_a_cell_invalid_and_names_the_cause() -> None:
    data = cell_data([record(0), record(1, error="HTTP 500: boom")])
    (reason,) = (f for f in verdict(data, TERMS).reasons if f.code == "failed-requests")
    assert "1 of 2" in reason.text
    assert "boom" in reason.text


def test_usage_that_disagrees_with_token_ids_is_invalid() -> None:
    assert codes(cell_data([record(0, completion_tokens=4)])) == {"usage-disagrees"}


def test_a_response_of_another_model_is_invalid() -> None:
    assert codes(cell_data([record(0, model="other")])) == {"model"}


@pytest.mark.parametrize(
    ("client", "code"),
    [
        ({"cpu_share": 0.9}, "client-saturated"),
        ({"clock": "user", "lag_p99_ns": 2_000_000}, "client-saturated"),
        ({"clock_drift_ns": -3_000_000}, "clock"),
        ({"peak_in_flight": 0}, "concurrency"),
    ],
)
def test_a_client_that_did_not_keep_up_makes_a_cell_invalid(
    client: dict[str, object], code: str
) -> None:
    assert codes(cell_data([record(0)], **client)) == {code}


def test_lag_does_not_matter_where_the_kernel_stamps() -> None:
    assert codes(cell_data([record(0)], lag_p99_ns=50_000_000)) == set()


def test_an_estimate_is_never_called_valid() -> None:
    terms = Terms(served_name="m", estimate="calibration")
    assert verdict(cell_data([record(0)]), terms).standing == "ESTIMATE"
    assert verdict(cell_data([record(0, error="x")]), terms).standing == "INVALID"


def test_depth_above_the_trained_one_is_flagged() -> None:
    assert "untrained-depth" in flags(speculating(), Terms(served_name="m", trained_depth=2))
    assert "untrained-depth" not in flags(speculating(), Terms(served_name="m", trained_depth=3))


def test_few_requests_merged_reads_and_slow_turnaround_are_flagged() -> None:
    data = cell_data([record(0)], reads=100, merged_reads=2, turnaround_p99_ns=5_000_000)
    assert flags(data) >= {"few-requests", "merged-reads", "turnaround"}
    assert verdict(data, TERMS).standing == "VALID"


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ((5,) * 24, True),
        ((1, 2, 3) * 8, True),
        (tuple(range(100)), False),
        ((9, 8, 7) + (1, 2, 3, 4, 5, 6) * 4, True),
        ((1, 2, 3) * 3, False),
        ((), False),
    ],
)
def test_a_loop_is_a_tail_that_repeats_itself(ids: tuple[int, ...], loops: bool) -> None:
    assert loops_at_end(ids) is loops


def test_stamps_and_a_rendering_that_differs_are_flags_of_every_cell() -> None:
    stamp = Finding(code="partial", text="PARTIAL: 3 of 80")
    terms = Terms(served_name="m", stamps=(stamp,), rendering="231 tokens, 229 expected")
    told = verdict(cell_data([record(0)]), terms)
    assert told.standing == "VALID"
    assert told.flags[0] == stamp
    assert "rendering-differs" in {f.code for f in told.flags}


def test_verdicts_need_no_token_ids_to_be_kept() -> None:
    """Private runs keep digests alone: a report must say what the run said."""
    kept = {"token_ids": None, "num_token_ids": 3}
    assert codes(cell_data([record(0, completion_tokens=4, **kept)])) == {"usage-disagrees"}
    loops = cell_data([record(0, token_ids=None, ends_in_loop=True)])
    assert "loops" in flags(loops)


def test_drafts_that_the_probe_saw_must_be_those_that_were_counted() -> None:
    def step(verified: int) -> Step:
        return Step(0, 2, 8, 0, verified, 3, 0.1, 0.1, 0.1, 0.1)

    data = speculating()
    object.__setattr__(data, "steps", (step(12), step(8)))
    assert codes(data) == set()
    object.__setattr__(data, "steps", (step(12), step(7)))
    (reason,) = verdict(data, TERMS).reasons  # type: ignore[arg-type]
    assert reason.text == "the probe saw 19 drafts verified, the counters 20"
