from __future__ import annotations

import pytest

from peagle_bench.analysis.metrics import acceptance_by_position, acceptance_length
from peagle_bench.core.record import CounterSnapshot
from peagle_bench.load.counters import parse_metrics, subtract
from tests.conftest import cell_data, record

TEXT = """\
# HELP vllm:spec_decode_num_drafts_total Number of drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 28.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.796074969e+09
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 6.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 20.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{POSITIONS} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 20.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_created gauge
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7e+09
"""


@pytest.mark.parametrize(
    "labels",
    [
        'position="0",engine="0",model_name="m"',
        'engine="0",position="0",model_name="m"',
        'engine="0",model_name="m",position="0"',
    ],
)
def test_engines_are_summed_wherever_the_position_label_stands(labels: str) -> None:
    snapshot = parse_metrics(TEXT.replace("POSITIONS", labels))
    assert snapshot.num_drafts == 40
    assert snapshot.num_accepted_tokens == 26
    assert snapshot.accepted_per_pos == (26.0,)
    assert snapshot.engines == ("0", "1")
    data = cell_data([record()], delta=subtract(CounterSnapshot(), snapshot), depth=1)
    assert acceptance_by_position(data) == (0.65,)


def test_names_without_the_total_suffix_are_the_same_counters() -> None:
    text = 'vllm:spec_decode_num_drafts{engine="0"} 5\nvllm:generation_tokens{engine="0"} 7\n'
    snapshot = parse_metrics(text)
    assert (snapshot.num_drafts, snapshot.generation_tokens) == (5, 7)


def test_the_created_gauges_bring_no_unix_time_in() -> None:
    text = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0"} 3.0\n'
        "# TYPE vllm:generation_tokens_created gauge\n"
        'vllm:generation_tokens_created{engine="0"} 1.796e+09\n'
    )
    assert parse_metrics(text).generation_tokens == 3


def test_a_baseline_has_no_draft_counters_and_they_are_none_not_zero() -> None:
    snapshot = parse_metrics('vllm:generation_tokens_total{engine="0"} 3.0\n')
    assert snapshot.num_drafts is None
    assert subtract(snapshot, snapshot).num_drafts is None


def test_earlier_traffic_and_warm_up_are_not_in_the_acceptance_length() -> None:
    after_warm_up = CounterSnapshot(num_drafts=1100, num_accepted_tokens=3100)
    at_the_end = CounterSnapshot(num_drafts=1200, num_accepted_tokens=3300)
    data = cell_data([record()], delta=subtract(after_warm_up, at_the_end), depth=3)
    assert acceptance_length(data) == 3.0


def test_a_counter_that_went_down_and_engines_that_changed_are_named() -> None:
    before = CounterSnapshot(generation_tokens=10, engines=("0",))
    after = CounterSnapshot(generation_tokens=4, engines=("0", "1"))
    problems = subtract(before, after).problems
    assert any("went down from 10 to 4" in p for p in problems)
    assert any("engines changed" in p for p in problems)


def test_a_series_that_vanished_is_named() -> None:
    delta = subtract(CounterSnapshot(num_drafts=3), CounterSnapshot())
    assert delta.num_drafts is None
    assert delta.problems == ("num_drafts is gone from /metrics",)
