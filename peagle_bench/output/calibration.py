"""The harness's own errors, as `calibrate` prints them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from peagle_bench.core.method import METHODS
from peagle_bench.core.result import Deviation
from peagle_bench.output import words


def print_errors(console: Console, errors: Sequence[Deviation]) -> None:
    """A row for each figure: the server's own record, what was measured, and the difference."""
    table = Table(
        title="ESTIMATE — CALIBRATION SERVER: the harness's own error", title_justify="left"
    )
    for name, justify in (
        ("C", "right"), ("server", "left"), ("metric", "left"), ("truth", "right"),
        ("measured", "right"), ("error", "right"), ("", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for error in sorted(errors, key=lambda e: e.concurrency):
        mark = Text("ok", style="green") if error.within else Text("beyond", style="red")
        table.add_row(
            str(error.concurrency),
            _title(error),
            f"{error.metric} ({'ms' if error.unit == 's' else error.unit})",
            _value(error, error.truth),
            _value(error, error.measured),
            _difference(error),
            mark,
        )
    console.print(table)


def _value(error: Deviation, value: float) -> str:
    if error.unit == "s":
        return words.milliseconds(value)
    return f"{value:.4f}" if error.unit == "tokens" else words.rate(value)


def _difference(error: Deviation) -> str:
    difference = error.measured - error.truth
    if error.unit == "s":
        return f"{difference * 1e3:+.3f} ms"
    return f"{difference / error.truth:+.2%}" if error.truth else f"{difference:+.3f}"


def _title(error: Deviation) -> str:
    """`EAGLE-3 K=7`"""
    name = METHODS[error.method].title
    return name if error.depth is None else f"{name} K={error.depth}"
