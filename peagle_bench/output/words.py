"""Numbers as they are printed. Milliseconds exist only from here on."""

from __future__ import annotations

from peagle_bench.analysis.table import Row
from peagle_bench.core.method import METHODS
from peagle_bench.core.result import Comparison

NONE = "—"


def rate(value: float | None) -> str:
    """Tokens per second: three significant digits, `1,234` from a thousand."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def length(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def speedup(comparison: Comparison | None, interval: bool = True) -> str:
    """`1.32x [1.21, 1.44]`; without an interval when there is none or none is wanted.

    Nothing where either cell does not stand.
    """
    if comparison is None or comparison.standing not in ("VALID", "ESTIMATE"):
        return NONE
    text = f"{comparison.speedup:.2f}x"
    if interval and comparison.low is not None and comparison.high is not None:
        text += f" [{comparison.low:.2f}, {comparison.high:.2f}]"
    return text


def stands(row: Row) -> bool:
    """There is a speedup over the baseline that may be quoted."""
    return speedup(row.versus_baseline) != NONE


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def depth(value: int | None) -> str:
    return NONE if value is None else str(value)


def method_title(row: Row) -> str:
    return METHODS[row.method].title


def seconds(value: float) -> str:
    """`45 s`, `6 min 10 s`, `2 h 05 min`."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
