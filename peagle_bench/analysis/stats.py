"""Percentiles that the count allows, and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

# Fewest observations for a percentile at 99 % confidence with a 0.05 x (1 - p) margin, as in
# MLPerf Inference's early stopping: below them a "p99" is little more than the maximum.
FEWEST = {0.5: 1, 0.9: 64, 0.95: 130, 0.99: 662}


def mean(values: Sequence[float]) -> float | None:
    """None for nothing."""
    return math.fsum(values) / len(values) if values else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear interpolation between order statistics; None when the count does not allow it."""
    if len(values) < FEWEST[share]:
        return None
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def difference_interval(
    parts_a: Sequence[float],
    wholes_a: Sequence[float],
    parts_b: Sequence[float],
    wholes_b: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float] | None:
    """95 % interval of Σ parts_a / Σ wholes_a - Σ parts_b / Σ wholes_b.

    Paired bootstrap as in `ratio_interval`: for acceptance lengths, accepted drafts over drafts.
    None with fewer than 2 prompts, or where a draw has no whole.
    """
    sums = _drawn(parts_a, wholes_a, parts_b, wholes_b, seed, resamples)
    if sums is None or not (sums[:, 1].all() and sums[:, 3].all()):
        return None
    return _interval(sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3], len(parts_a))


def rate_interval(
    parts: Sequence[float], wholes: Sequence[float], *, seed: int = 0, resamples: int = 2000
) -> tuple[float, float] | None:
    """95 % interval of Σ parts / Σ wholes over prompts, by the same bootstrap.

    A mean where every whole is 1. None with fewer than 2 prompts, or where a draw has no whole.
    """
    ones = [1.0] * len(parts)
    sums = _drawn(parts, wholes, ones, ones, seed, resamples)
    if sums is None or not sums[:, 1].all():
        return None
    return _interval(sums[:, 0] / sums[:, 1], len(parts))


def ratio_interval(
    tokens_a: Sequence[float],
    seconds_a: Sequence[float],
    tokens_b: Sequence[float],
    seconds_b: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float] | None:
    """95 % interval of (Σ tokens_a / Σ seconds_a) / (Σ tokens_b / Σ seconds_b).

    Paired bootstrap: the four sequences run over the same prompts, and a prompt is drawn with all
    its four values. The percentiles are expanded for the count as Hesterberg (2015) proposes:
    plain ones, and BCa, cover the truth too seldom below some 50 prompts. None with fewer than 2
    prompts.
    """
    sums = _drawn(tokens_a, seconds_a, tokens_b, seconds_b, seed, resamples)
    if sums is None:
        return None
    ratios = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    return _interval(ratios, len(tokens_a))


def _drawn(
    a: Sequence[float],
    b: Sequence[float],
    c: Sequence[float],
    d: Sequence[float],
    seed: int,
    resamples: int,
) -> Any:
    """Sums over draws of prompts with replacement: shape (resamples, 4); None below 2 prompts."""
    count = len(a)
    if count < 2:
        return None
    import numpy as np

    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return draws @ np.column_stack([a, b, c, d]).astype(float)


def _interval(values: Any, count: int) -> tuple[float, float]:
    """The 95 % interval of a bootstrap over `count` prompts, its percentiles expanded."""
    import numpy as np
    from scipy.stats import norm, t

    reach = math.sqrt(count / (count - 1)) * t.ppf(0.975, count - 1)
    low, high = np.quantile(values, [norm.cdf(-reach), norm.cdf(reach)])
    return float(low), float(high)
