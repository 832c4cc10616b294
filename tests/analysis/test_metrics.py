"""Each metric against figures worked out by hand."""

from __future__ import annotations

import pytest

from peagle_bench.analysis import metrics
from peagle_bench.analysis.intervals import cell_intervals
from peagle_bench.core.record import CellData, CounterDelta, RequestRecord
from tests.conftest import MS, cell_data, record, spec


def value(name: str, data: CellData) -> float | None:
    return metrics.BY_NAME[name].compute(data)


def test_otps_is_all_tokens_over_first_send_to_last_token() -> None:
    data = cell_data(
        [
            record(0, chunks=((100, 1), (200, 3)), sent_ms=0),
            record(1, chunks=((500, 2), (1000, 4)), sent_ms=300),
        ]
    )
    assert value("output_tok_per_s", data) == pytest.approx(10 / 1.0)


def test_the_bytes_after_the_last_token_do_not_count() -> None:
    data = cell_data([record(0, chunks=((500, 1), (1000, 9)), end_ms=1500)])
    assert value("output_tok_per_s", data) == pytest.approx(10.0)


def test_a_failed_request_is_in_no_numerator_and_no_latency() -> None:
    good = record(0, chunks=((100, 1), (1000, 9)))
    bad = record(1, chunks=((50, 40), (9000, 60)), error="reset")
    data = cell_data([good, bad])
    assert value("output_tok_per_s", data) == pytest.approx(10.0)
    assert value("ttft_s_mean", data) == pytest.approx(0.1)
    assert value("failed_requests", data) == 1
    assert value("output_tokens", data) == 10


def test_ttft_counts_from_the_scheduled_send() -> None:
    late = record(0, chunks=((150, 1), (200, 1)), sent_ms=100, scheduled_ns=20 * MS)
    assert metrics.ttft_s(late) == pytest.approx(0.13)


def test_tpot_leaves_the_first_chunks_tokens_out_of_both_sides() -> None:
    r = record(0, chunks=tuple((100 + 20 * i, 4) for i in range(25)))
    assert metrics.tpot_s(r) == pytest.approx(0.48 / 96)


def test_tpot_of_a_single_chunk_is_none_not_zero() -> None:
    data = cell_data([record(0, chunks=((100, 5),))])
    assert value("tpot_s_mean", data) is None
    assert value("chunk_gap_s_mean", data) is None
    assert value("request_tok_per_s", data) is None


def test_tpot_without_tokens_per_chunk_takes_the_average_chunk() -> None:
    r = record(0, chunks=tuple((100 + 20 * i, 0) for i in range(25)), completion_tokens=100)
    assert metrics.tpot_s(r) == pytest.approx(0.48 / 96)


def test_usage_missing_makes_otps_none() -> None:
    data = cell_data([record(0), record(1, completion_tokens=None)])
    assert value("output_tok_per_s", data) is None


def test_steady_otps_counts_only_while_c_are_in_flight() -> None:
    # Two places: A and B from 0 ms, C follows A. At 1000 ms B ends with nothing left to send.
    records = [
        record(0, chunks=((100, 1), (400, 7)), sent_ms=0),
        record(1, chunks=((100, 1), (1000, 9)), sent_ms=0),
        record(2, chunks=((500, 2), (2000, 50)), sent_ms=400),
    ]
    data = cell_data(records, concurrency=2)
    assert value("steady_output_tok_per_s", data) == pytest.approx((1 + 7 + 1 + 9 + 2) / 1.0)


def test_acceptance_length_counts_the_bonus_token() -> None:
    delta = CounterDelta(num_drafts=100, num_accepted_tokens=190, num_draft_tokens=300)
    data = cell_data([record()], delta=delta, depth=3)
    assert value("acceptance_length", data) == pytest.approx(2.9)
    assert value("acceptance_rate", data) == pytest.approx(190 / 300)


def test_without_drafts_acceptance_is_none() -> None:
    for delta in (CounterDelta(), CounterDelta(num_drafts=0, num_accepted_tokens=0)):
        data = cell_data([record()], delta=delta)
        assert value("acceptance_length", data) is None
        assert value("acceptance_rate", data) is None
        assert metrics.acceptance_by_position(data) is None


def test_acceptance_by_position_and_its_conditional() -> None:
    delta = CounterDelta(num_drafts=10, num_accepted_tokens=11, accepted_per_pos=(8, 3, 0))
    data = cell_data([record()], delta=delta, depth=3)
    assert metrics.acceptance_by_position(data) == (0.8, 0.3, 0.0)
    assert metrics.conditional_by_position(data) == (0.8, pytest.approx(0.375), 0.0)


def test_a_conditional_share_of_nothing_is_none() -> None:
    delta = CounterDelta(num_drafts=10, num_accepted_tokens=0, accepted_per_pos=(0, 0))
    data = cell_data([record()], delta=delta, depth=2)
    assert metrics.conditional_by_position(data) == (0.0, None)


def test_an_eos_inside_the_accepted_prefix_shows_in_emitted_length_alone() -> None:
    # K=3, one token from the prefill, three steps that accept 3 each, EOS second in the last.
    r = record(0, chunks=((10, 1), (20, 4), (30, 4), (40, 2)), spec=spec(3, 9, 3))
    delta = CounterDelta(num_drafts=3, num_accepted_tokens=9)
    data = cell_data([r], delta=delta, depth=3)
    assert value("acceptance_length", data) == 4.0
    assert value("acceptance_length_per_request", data) == 4.0
    assert value("emitted_length", data) == pytest.approx(10 / 3)


def test_emitted_length_is_none_when_the_server_merged_steps() -> None:
    data = cell_data([record(0, chunks=((10, 1), (20, 9)))], depth=3)
    assert value("emitted_length", data) is None


def test_pooled_and_mean_of_requests_weigh_differently() -> None:
    records = [record(0, spec=spec(90, 90, 3)), record(1, spec=spec(10, 30, 3))]
    data = cell_data(records, depth=3)
    assert value("acceptance_length_per_request", data) == pytest.approx(1 + 120 / 100)
    assert value("acceptance_length_mean_of_requests", data) == pytest.approx((2 + 4) / 2)


def test_acceptance_length_by_category_pools_within_it() -> None:
    records = [
        record(0, spec=spec(10, 10, 3), category="math"),
        record(1, spec=spec(10, 20, 3), category="code"),
        record(2, spec=spec(30, 30, 3), category="code"),
    ]
    got = metrics.acceptance_length_by_category(cell_data(records, depth=3))
    assert got == {"code": pytest.approx(1 + 50 / 40), "math": 2.0}


def test_tails_need_their_count() -> None:
    few = cell_data([record(i) for i in range(63)])
    more = cell_data([record(i) for i in range(64)])
    assert value("ttft_s_p90", few) is None
    assert value("ttft_s_p90", more) == pytest.approx(0.1)
    assert value("ttft_s_p99", more) is None
    assert value("ttft_s_p50", few) == pytest.approx(0.1)


def test_nothing_succeeded_means_none_everywhere_but_the_counts() -> None:
    data = cell_data([record(0, error="HTTP 500: x"), record(1, error="HTTP 500: x")])
    values = {m.name: m.compute(data) for m in metrics.METRICS}
    counts = {"requests", "conversations", "failed_requests"}
    assert {k for k, v in values.items() if v is not None} == counts


def test_acceptance_length_by_turn_pools_each_turn() -> None:
    def turn(i: int, talk: str, number: int, drafts: int, accepted: int) -> RequestRecord:
        return record(i, prompt_id=talk, turn=number, spec=spec(drafts, accepted, 3))

    data = cell_data(
        [turn(0, "a", 1, 10, 10), turn(1, "a", 2, 10, 20), turn(2, "b", 1, 30, 0)], depth=3
    )
    assert metrics.acceptance_length_by_turn(data) == {1: 1.25, 2: 3.0}
    assert metrics.BY_NAME["conversations"].compute(data) == 2


def test_the_steady_rate_counts_a_conversation_as_one_place() -> None:
    """Two places: a holds one for 0 to 400 ms in two turns, b the other for 0 to 300 ms, c for
    300 to 500 ms: both are held until a ends."""

    def turn(i: int, talk: str, number: int, sent: float, *at: float) -> RequestRecord:
        return record(i, prompt_id=talk, turn=number, sent_ms=sent, chunks=[(t, 1) for t in at])

    data = cell_data(
        [
            turn(0, "a", 1, 0, 100, 200),
            turn(1, "a", 2, 200, 300, 400),
            turn(2, "b", 1, 0, 150, 300),
            turn(3, "c", 1, 300, 350, 500),
        ],
        concurrency=2,
    )
    assert metrics.steady_output_tok_per_s(data) == pytest.approx(7 / 0.4)


def test_every_metric_has_a_unit_a_direction_and_a_reason_for_being_none() -> None:
    names = [m.name for m in metrics.METRICS]
    assert len(names) == len(set(names))
    for m in metrics.METRICS:
        assert m.unit
        assert m.missing or m.unit == "count"
        assert not m.name.endswith("_ms")


def test_pass_at_1_leaves_the_sandboxs_own_failures_out_and_counts_no_code_as_a_fail() -> None:
    scores = ("passed", "failed", "no_code", "infra_error")
    data = cell_data([record(i, score=s) for i, s in enumerate(scores)])
    assert value("pass_at_1", data) == pytest.approx(1 / 3)
    assert value("pass_at_1", cell_data([record(0)])) is None


def test_a_cells_own_figures_have_intervals_that_hold_them() -> None:
    records = [
        record(i, chunks=((100 + i, 1), (200 + 20 * i, 4)), sent_ms=0, spec=spec(10, 5 + i, 3))
        for i in range(6)
    ]
    delta = CounterDelta(
        generation_tokens=30, requests_finished=6, num_drafts=60, num_accepted_tokens=45,
        num_draft_tokens=180,
    )  # fmt: skip
    data = cell_data(records, delta=delta, depth=3)
    found = cell_intervals(data)
    for name in ("output_tok_per_s", "ttft_s_mean", "tpot_s_mean", "acceptance_length"):
        low, high = found[name]
        point = value(name, data)
        assert point is not None
        assert low < point < high, name
    assert cell_intervals(cell_data(records[:1])) == {}
