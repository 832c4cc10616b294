"""Outputs that end in a loop: easy to draft, so acceptance there says little."""

from __future__ import annotations

from collections.abc import Sequence

LOOP_PERIOD = 64
LOOP_REPEATS = 4


def loops_at_end(ids: Sequence[int]) -> bool:
    """The last tokens repeat one period of up to 64 tokens at least four times."""
    for period in range(1, LOOP_PERIOD + 1):
        span = period * LOOP_REPEATS
        if span > len(ids):
            return False
        tail = ids[-span:]
        if span >= 24 and tail[period:] == tail[:-period]:
            return True
    return False
