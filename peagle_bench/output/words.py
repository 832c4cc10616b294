"""Numbers as they are printed. Milliseconds exist only from here on."""

from __future__ import annotations

from collections.abc import Sequence

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


def share(part: int, of: int) -> str:
    """`34.1% [27.4, 41.7]` with Wilson's 95 % interval; nothing of nothing."""
    if not of:
        return NONE
    from scipy.stats import binomtest

    interval = binomtest(part, of).proportion_ci(method="wilson")
    return f"{part / of:.1%} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


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


def _difference(comparison: Comparison | None) -> str:
    """` (a difference of -0.35 [-0.61, -0.12])`; nothing where there is none."""
    if comparison is None or comparison.length_low is None or comparison.length_high is None:
        return ""
    return (
        f" (a difference of {comparison.length_difference:+.2f} "
        f"[{comparison.length_low:+.2f}, {comparison.length_high:+.2f}])"
    )


def explanations(rows: Sequence[Row]) -> list[str]:
    """P-EAGLE against EAGLE-3 at the same K, in what makes the difference; where both stand."""
    eagle = {(r.suite, r.concurrency, r.depth): r for r in rows if r.method == "eagle3"}
    out = []
    for row in rows:
        other = eagle.get((row.suite, row.concurrency, row.depth))
        ratio = speedup(row.versus_eagle3, interval=False)
        if row.method != "peagle" or other is None or ratio == NONE:
            continue
        times = (row.step_s, other.step_s, row.draft_s, other.draft_s)
        lengths = (row.acceptance_length, other.acceptance_length)
        if None in times or None in lengths:
            continue
        out.append(
            f"{row.suite}, C={row.concurrency}: P-EAGLE at K={row.depth} serves {ratio} EAGLE-3. "
            f"Drafting takes {milliseconds(row.draft_s)} ms instead of "
            f"{milliseconds(other.draft_s)} ms, a step {milliseconds(row.step_s)} ms instead of "
            f"{milliseconds(other.step_s)} ms, and AL is {length(row.acceptance_length)} instead "
            f"of {length(other.acceptance_length)}{_difference(row.versus_eagle3)}."
        )
    return out
