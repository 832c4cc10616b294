"""Percentiles that the count allows, and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    its four values. Bias-corrected and accelerated (scipy), percentile where that is degenerate.
    None with fewer than 2 prompts.
    """
    if len(tokens_a) < 2:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    def statistic(ta, sa, tb, sb, axis=-1):  # type: ignore[no-untyped-def]
        return (ta.sum(axis) / sa.sum(axis)) / (tb.sum(axis) / sb.sum(axis))

    data = [np.asarray(v, dtype=float) for v in (tokens_a, seconds_a, tokens_b, seconds_b)]
    for method in ("BCa", "percentile"):
        with np.errstate(all="ignore"):
            interval = bootstrap(
                data,
                statistic,
                paired=True,
                vectorized=True,
                n_resamples=resamples,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        low, high = float(interval.low), float(interval.high)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    return None
