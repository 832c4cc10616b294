from __future__ import annotations

import pytest

from peagle_bench.analysis.steptime import at_concurrency, by_batch, decode_steps, verified
from peagle_bench.core.step import Step


def step(reqs: int = 1, tokens: int | None = None, interval: float | None = 0.1, **kw: int) -> Step:
    return Step(
        start_ns=0,
        num_reqs=reqs,
        num_tokens=4 * reqs if tokens is None else tokens,
        new_reqs=kw.get("new", 0),
        verified=reqs,
        depth=3,
        forward_s=0.05,
        sample_s=0.01,
        draft_s=0.02,
        interval_s=interval,
    )


def test_the_stages_of_a_step_add_up_to_the_time_to_the_next() -> None:
    times = at_concurrency([step(), step(), step(interval=0.12)], 1)
    assert times is not None
    assert times.steps == 2
    assert times.step_s == pytest.approx(0.11)
    assert times.forward_s + times.sample_s + times.draft_s + times.host_s == pytest.approx(0.11)
    assert times.draft_s == pytest.approx(0.02)


def test_a_step_with_a_prompt_in_it_or_after_it_does_not_count() -> None:
    steps = [step(), step(tokens=120, new=1, interval=0.3), step(interval=9.0), step()]
    assert [t for _, t in decode_steps(steps)] == [0.1]


def test_batch_sizes_are_kept_apart_and_a_change_of_batch_does_not_count() -> None:
    steps = [step(2), step(2), step(1), step(1), step(1)]
    assert [(t.batch, t.steps) for t in by_batch(steps)] == [(1, 2), (2, 1)]
    assert at_concurrency(steps, 4) is None


def test_verified_drafts_are_summed_over_all_steps() -> None:
    assert verified([step(2), step(1)]) == 3
