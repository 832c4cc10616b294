"""Each method at its best K, chosen on other prompts than the ratio is taken on."""

from __future__ import annotations

import random

import pytest

from peagle_bench.analysis.peak import peaks
from tests.analysis.test_compare import both, cell, made

TOKENS = tuple(range(10, 50))


def test_the_best_depth_is_chosen_for_each_method_and_compared_at_it() -> None:
    results, data = both(
        made(cell("baseline"), 10, TOKENS),
        made(cell("eagle3", 3), 5, TOKENS),
        made(cell("eagle3", 7), 8, TOKENS),
        made(cell("peagle", 3), 6, TOKENS),
        made(cell("peagle", 7), 4, TOKENS),
    )
    found = {(p.method, p.versus): p for p in peaks(results, data)}
    assert found.keys() == {("eagle3", "baseline"), ("peagle", "baseline"), ("peagle", "eagle3")}
    best = found[("peagle", "eagle3")]
    assert (best.depth, best.versus_depth, best.prompts) == (7, 3, 20)
    assert best.speedup == pytest.approx(5 / 4)
    assert best.low is not None and best.high is not None
    assert best.low <= best.speedup <= best.high


def test_the_luckiest_of_equal_depths_gains_nothing() -> None:
    """Four depths of the very same speed with noise: picking the best on all prompts would show a
    gain over the baseline; on the other half it averages to none."""
    rng = random.Random(3)
    ratios = []
    for seed in range(60):
        cells = [made(cell("baseline"), 10, TOKENS)]
        for depth in (1, 3, 5, 7):
            result, held = made(cell("peagle", depth), 10, TOKENS)
            for record in held.records:
                wait = record.chunk_ns[-1] - record.sent_ns
                noisy = int(wait * rng.lognormvariate(0, 0.4))
                times = (record.chunk_ns[0], max(record.chunk_ns[0], record.sent_ns + noisy))
                object.__setattr__(record, "chunk_ns", times)
            cells.append((result, held))
        (peak,) = peaks(*both(*cells), seed=seed)
        ratios.append(peak.speedup)
    mean_noise = 1 / 1.083  # seconds grow by exp(0.4^2 / 2) on average
    assert sum(ratios) / len(ratios) == pytest.approx(mean_noise, rel=0.03)


def test_one_depth_or_few_prompts_have_no_peak() -> None:
    one = both(made(cell("baseline"), 10, TOKENS), made(cell("peagle", 7), 5, TOKENS))
    assert peaks(*one) == []
    few = both(made(cell("peagle", 3), 5, (8, 9)), made(cell("peagle", 7), 5, (8, 9)))
    assert peaks(*few) == []
