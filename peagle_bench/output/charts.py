"""Charts from rows: one function each, SVG and PNG.

INVALID and FAILED rows are left out and said to be; ESTIMATE is written across. Colours are
Okabe and Ito's, and every method has its own marker, so that a chart reads in print too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.analysis.table import Row, best_rows
from peagle_bench.core.method import METHODS
from peagle_bench.output import words

_COLOURS = {
    "baseline": "#555555",
    "eagle3": "#0072B2",
    "peagle": "#D55E00",
    "ngram": "#009E73",
    "draft_model": "#CC79A7",
    "eagle": "#56B4E9",
}
_MARKERS = {"baseline": "s", "eagle3": "o", "peagle": "D", "ngram": "^", "draft_model": "v"}
_STANDING = ("VALID", "ESTIMATE")
# Name, attribute of a row, colour, and a hatch that tells them apart in print.
_STAGES = (
    ("target's forward", "forward_s", "#0072B2", ""),
    ("drafting", "draft_s", "#D55E00", "//"),
    ("sampling", "sample_s", "#009E73", ".."),
    ("rest (host)", "host_s", "#BBBBBB", ""),
)

Chart = Callable[[Sequence[Row], str], "Any"]


def otps_by_concurrency(rows: Sequence[Row], suite: str) -> Any:
    """OTPS over C, a line per method at its best K; bars by K where only one C was run."""
    shown = [r for r in _standing(rows, suite) if r.output_tok_per_s is not None]
    if not shown:
        return None
    levels = sorted({r.concurrency for r in shown})
    figure, axes = _figure()
    if len(levels) == 1:
        labels = [_label(r) for r in shown]
        bars = axes.bar(
            range(len(shown)),
            [r.output_tok_per_s for r in shown],
            color=[_COLOURS.get(r.method, "#999999") for r in shown],
            yerr=_spread(shown),
            capsize=3,
        )
        axes.bar_label(bars, [words.rate(r.output_tok_per_s) for r in shown], padding=2)
        axes.set_xticks(range(len(shown)), labels)
        axes.set_xlabel(f"method and K, concurrency {levels[0]}")
        axes.margins(y=0.15)
    else:
        best = best_rows(shown)
        for method in dict.fromkeys(r.method for r in shown):
            line = [best[(suite, c, method)] for c in levels if (suite, c, method) in best]
            axes.plot(
                [r.concurrency for r in line],
                [r.output_tok_per_s for r in line],
                **_style(method),
                label=METHODS[method].title,
            )
            for row in line:
                if row.depth is not None:
                    axes.annotate(
                        f"K={row.depth}",
                        (row.concurrency, row.output_tok_per_s),
                        textcoords="offset points",
                        xytext=(0, 7),
                        ha="center",
                        fontsize=7,
                    )
        axes.set_xscale("log", base=2)
        axes.set_xticks(levels, [str(c) for c in levels])
        axes.set_xlabel("concurrency (requests in flight)")
        axes.legend(frameon=False)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("output tokens per second")
    axes.set_title(
        f"{suite}: output tokens per second, each method at its best K"
        if len(levels) > 1
        else f"{suite}: output tokens per second"
    )
    _finish(figure, rows, suite)
    return figure


def acceptance_length_by_depth(rows: Sequence[Row], suite: str) -> Any:
    """Acceptance length over K at the lowest C, a line per method, from 1: no draft accepted."""
    made = _by_depth(rows, suite, lambda r: r.acceptance_length)
    if made is None:
        return None
    figure, axes, lowest, most = made
    axes.set_ylabel("acceptance length (tokens per step)")
    axes.set_ylim(1, 1 + 1.12 * (most - 1) if most > 1 else 2)
    axes.set_title(f"{suite}: acceptance length, concurrency {lowest} (1 = no draft accepted)")
    _finish(figure, rows, suite)
    return figure


def draft_time_by_depth(rows: Sequence[Row], suite: str) -> Any:
    """Drafting per step over K at the lowest C, from the probe: sequential grows, parallel not."""
    made = _by_depth(rows, suite, lambda r: None if r.draft_s is None else r.draft_s * 1e3)
    if made is None:
        return None
    figure, axes, lowest, _ = made
    axes.set_ylabel("drafting per step (ms, probe)")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{suite}: drafter latency, concurrency {lowest}")
    _finish(figure, rows, suite)
    return figure


def _by_depth(
    rows: Sequence[Row], suite: str, value: Callable[[Row], float | None]
) -> tuple[Any, Any, int, float] | None:
    """(figure, axes, lowest C, largest value): `value` over K at the lowest C, a line per method;
    None where no row has it."""
    told = [(r, v) for r in _standing(rows, suite) if (v := value(r)) is not None]
    if not told:
        return None
    lowest = min(r.concurrency for r, _ in told)
    shown = [(r, v) for r, v in told if r.concurrency == lowest]
    figure, axes = _figure()
    for method in dict.fromkeys(r.method for r, _ in shown):
        line = sorted(((r.depth or 0), v) for r, v in shown if r.method == method)
        title = METHODS[method].title
        axes.plot([k for k, _ in line], [v for _, v in line], **_style(method), label=title)
    depths = sorted({r.depth for r, _ in shown if r.depth is not None})
    axes.set_xticks(depths, [str(k) for k in depths])
    axes.set_xlabel("K (tokens drafted per step)")
    axes.legend(frameon=False)
    return figure, axes, lowest, max(v for _, v in shown)


def step_time_by_stage(rows: Sequence[Row], suite: str) -> Any:
    """A decode step's time stacked by stage at the lowest C, from the probe."""
    shown = [r for r in _standing(rows, suite) if r.step_s is not None]
    if not shown:
        return None
    lowest = min(r.concurrency for r in shown)
    shown = [r for r in shown if r.concurrency == lowest]
    figure, axes = _figure()
    places = range(len(shown))
    base = [0.0] * len(shown)
    for name, stage, colour, hatch in _STAGES:
        values = [(getattr(r, stage) or 0.0) * 1e3 for r in shown]
        axes.bar(places, values, bottom=base, label=name, color=colour, hatch=hatch, edgecolor="w")
        base = [b + v for b, v in zip(base, values, strict=True)]
    axes.set_xticks(places, [_label(r) for r in shown])
    axes.set_xlabel(f"method and K, concurrency {lowest}")
    axes.set_ylabel("time of a decode step (ms, probe)")
    axes.margins(y=0.15)
    axes.legend(frameon=False, ncols=4, fontsize=8)
    axes.set_title(f"{suite}: where a step's time goes")
    _finish(figure, rows, suite)
    return figure


CHARTS: dict[str, Chart] = {
    "otps-by-concurrency": otps_by_concurrency,
    "acceptance-length-by-depth": acceptance_length_by_depth,
    "draft-time-by-depth": draft_time_by_depth,
    "step-time-by-stage": step_time_by_stage,
}


def write_charts(
    rows: Sequence[Row],
    folder: Path,
    fingerprint: str,
    stamps: Mapping[str, Sequence[str]] | None = None,
) -> list[Path]:
    """Every chart that has something to show, for each suite; the PNG paths.

    stamps: by suite, what a reader who sees one chart alone must know.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "peagle-bench"
    import matplotlib.pyplot as plt

    written = []
    for suite in dict.fromkeys(r.suite for r in rows):
        for name, chart in CHARTS.items():
            figure = chart(rows, suite)
            if figure is None:
                continue
            figure.text(0.01, 0.01, f"{_verdicts(rows, suite)} · {fingerprint}", fontsize=6)
            for line, stamp in enumerate((stamps or {}).get(suite, ())):
                figure.text(
                    0.01, 0.035 + 0.025 * line, _shortened(stamp), fontsize=6, color="#cc0000"
                )
            path = folder / f"{suite}-{name}.png"
            figure.savefig(path, dpi=150)
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
            plt.close(figure)
            written.append(path)
    return written


def _figure() -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0.08, 1, 0.92))  # room for the footer
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _finish(figure: Any, rows: Sequence[Row], suite: str) -> None:
    if any(r.standing == "ESTIMATE" for r in _standing(rows, suite)):
        figure.text(
            0.5,
            0.5,
            "ESTIMATE\nCALIBRATION SERVER",
            fontsize=40,
            color="#cc0000",
            alpha=0.18,
            rotation=25,
            ha="center",
            va="center",
        )


def _verdicts(rows: Sequence[Row], suite: str) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        if row.suite == suite:
            counts[row.standing] = counts.get(row.standing, 0) + 1
    return ", ".join(
        f"{n} {standing}" + ("" if standing in _STANDING else " (left out)")
        for standing, n in counts.items()
    )


def _standing(rows: Sequence[Row], suite: str) -> list[Row]:
    return [r for r in rows if r.suite == suite and r.standing in _STANDING]


def _shortened(text: str) -> str:
    return text if len(text) <= 150 else text[:149] + "…"


def _label(row: Row) -> str:
    title = METHODS[row.method].title
    return title if row.depth is None else f"{title}\nK={row.depth}"


def _style(method: str) -> dict[str, Any]:
    return {
        "color": _COLOURS.get(method, "#999999"),
        "marker": _MARKERS.get(method, "x"),
        # A method hidden under an equal one still shows its larger, open marker.
        "markersize": 9 if method == "eagle3" else 6,
        "markerfacecolor": "none" if method == "eagle3" else None,
        "linestyle": "--" if method == "baseline" else "-",
    }


def _spread(rows: Sequence[Row]) -> Any:
    """Smallest and largest repeat around each bar; None without repeats."""
    if any(r.output_tok_per_s_low is None for r in rows):
        return None
    low = [(r.output_tok_per_s or 0) - (r.output_tok_per_s_low or 0) for r in rows]
    high = [(r.output_tok_per_s_high or 0) - (r.output_tok_per_s or 0) for r in rows]
    return [low, high]
