from __future__ import annotations

import pytest

from peagle_bench.core.result import Comparison
from peagle_bench.output import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0.1234, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (123.4, "123"),
     (1234.5, "1,234")],
)  # fmt: skip
def test_rates_have_three_digits_and_none_is_a_dash(value: float | None, text: str) -> None:
    assert words.rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "—"), (0.0000123, "0.012"), (0.00526, "5.3"), (0.162, "162"), (1.686, "1,686")],
)
def test_milliseconds_are_made_from_seconds(seconds: float | None, text: str) -> None:
    assert words.milliseconds(seconds) == text


@pytest.mark.parametrize(("s", "text"), [(45.4, "45 s"), (370, "6 min 10 s"), (7500, "2 h 05 min")])
def test_durations_read_like_durations(s: float, text: str) -> None:
    assert words.seconds(s) == text


def comparison(standing: str) -> Comparison:
    return Comparison(
        suite="s", concurrency=1, method="peagle", depth=7, versus="baseline", versus_depth=None,
        speedup=1.321, low=1.2, high=1.44, prompts=9, standing=standing,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize("standing", ["INVALID", "FAILED"])
def test_a_speedup_over_a_cell_that_does_not_stand_is_not_printed(standing: str) -> None:
    assert words.speedup(comparison(standing)) == "—"


def test_a_speedup_is_printed_with_its_interval() -> None:
    assert words.speedup(comparison("VALID")) == "1.32x [1.20, 1.44]"
    assert words.speedup(comparison("VALID"), interval=False) == "1.32x"
    assert words.speedup(None) == "—"


def test_a_narrow_terminal_loses_columns_but_never_the_method_or_the_verdict() -> None:
    import io

    from rich.console import Console

    from peagle_bench.analysis.table import Row
    from peagle_bench.output.console import result_table

    row = Row(
        suite="s", concurrency=1, method="peagle", depth=7, repeats=1, output_tok_per_s=12.3,
        versus_baseline=comparison("VALID"), acceptance_length=2.5, tpot_s=0.07,
        standing="ESTIMATE",
    )  # fmt: skip
    for width in (60, 80, 100, 140):
        out = io.StringIO()
        Console(file=out, width=width).print(result_table([row], width))
        assert "P-EAGLE" in out.getvalue()
        assert "ESTIMATE" in out.getvalue()
        assert "1.32x" in out.getvalue()
        assert "…" not in out.getvalue()
