"""The terminal: a live view where there is one, a plain log where there is not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from peagle_bench.analysis.table import Row
from peagle_bench.core.plan import Cell, Plan, ServerGroup
from peagle_bench.core.profile import Profile
from peagle_bench.core.result import CellResult
from peagle_bench.load.driver import Progress
from peagle_bench.output import words
from peagle_bench.output.findings import grouped_findings
from peagle_bench.planning import Prepared, estimated_run_s, estimated_s

_COLOURS = {
    "VALID": "green",
    "ESTIMATE": "yellow",
    "INVALID": "red",
    "FAILED": "red",
    "PENDING": "dim",
}


class RunView:
    """Shows a run as it goes. On a terminal: one live line under the log; else the log alone."""

    def __init__(self, console: Console, plan: Plan, profile: Profile) -> None:
        self._console, self._plan, self._profile = console, plan, profile
        self._live: Live | None = None
        self._status = ""
        self._started = time.monotonic()
        self._done_s = 0.0
        """Estimated seconds of what is done."""
        self._total_s = estimated_run_s(plan, profile)
        self._cell: Cell | None = None
        self._last_plain = 0.0

    def __enter__(self) -> RunView:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        self._log(f"[dim]{escape(text)}[/]")

    def server_starting(self, group: ServerGroup, number: int, of: int) -> None:
        self._last_plain = time.monotonic()
        self._log(f"[bold]server {number}/{of}[/] {group.label} (repeat {group.repeat}): starting")

    def server_waiting(self, waited_s: float) -> None:
        self._show(f"starting server, {waited_s:.0f} s")

    def server_ready(self, group: ServerGroup, start_s: float) -> None:
        self._done_s += self._profile.estimates.start_s
        self._log(f"  ready after {start_s:.0f} s")

    def cell_starting(self, cell: Cell, number: int, of: int) -> None:
        self._cell = cell
        self._last_plain = time.monotonic()
        self._where = f"cell {number}/{of} {cell.label}"
        self._show(f"{self._where}: warming up")

    def progress(self, progress: Progress) -> None:
        speed = (
            "" if progress.tok_per_s is None else f" · {words.rate(progress.tok_per_s)} tok/s now"
        )
        share = progress.finished / progress.total
        failed = f" · {progress.failed} failed" if progress.failed else ""
        self._show(
            f"{self._where}: {progress.finished}/{progress.total} requests · "
            f"{progress.in_flight} in flight{speed}{failed} · {self._eta(share)}"
        )

    def cell_done(self, result: CellResult) -> None:
        if self._cell is not None:
            self._done_s += estimated_s(self._plan, self._profile, self._cell)
        m, verdict = result.metrics, result.verdict
        colour = _COLOURS[verdict.standing]
        length = m["acceptance_length"]
        self._log(
            f"  {result.cell.suite} C={result.cell.concurrency}: "
            f"{words.rate(m['output_tok_per_s'])} tok/s · "
            + (f"AL {words.length(length)} · " if length is not None else "")
            + f"TTFT {words.milliseconds(m['ttft_s_p50'])} ms · "
            f"TPOT {words.milliseconds(m['tpot_s_mean'])} ms · [{colour}]{verdict.standing}[/]"
        )
        for reason in verdict.reasons:
            if reason.code != "estimate":
                self._log(f"    [{colour}]{escape(reason.text)}[/]")

    def failed(self, what: str, why: str) -> None:
        self._log(f"  [red bold]{escape(what)} failed[/]: {escape(why)}")

    def _eta(self, share: float) -> str:
        """From the estimates, scaled by how far they were off so far.

        share: what part of the current cell is done.
        """
        spent = time.monotonic() - self._started
        cell_s = estimated_s(self._plan, self._profile, self._cell) if self._cell else 0.0
        done_s = self._done_s + share * cell_s
        if done_s <= 0:
            return f"about {words.seconds(self._total_s)} in all"
        left = (self._total_s - done_s) * spent / done_s
        return f"about {words.seconds(max(left, 0.0))} left"

    def _log(self, markup: str) -> None:
        if not self._console.is_terminal:
            stamp = time.strftime("%H:%M:%S")
            self._console.print(f"{stamp} {markup}", highlight=False, soft_wrap=True)
            return
        self._console.print(markup, highlight=False)

    def _show(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Text(text, style="cyan"), refresh=True)
        elif time.monotonic() - self._last_plain > 30:
            self._last_plain = time.monotonic()
            self._log(f"  [dim]{escape(text)}[/]")


def print_start(console: Console, prepared: Prepared) -> None:
    """What was chosen, and why, before anything starts."""
    profile, config = prepared.profile, prepared.plan.config
    console.print(
        f"[bold]{escape(profile.title)}[/] — {escape(prepared.why_profile)}", highlight=False
    )
    if prepared.install is not None:
        console.print(
            f"vLLM {prepared.install.version} ({prepared.install.distribution})", highlight=False
        )
    for note in prepared.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
    plan = prepared.plan
    requests = sum(c.num_requests + config.warmup for c in plan.cells)
    console.print(
        f"{words.counted(len(plan.groups), 'server start')}, "
        f"{words.counted(len(plan.cells), 'cell')}, {words.counted(requests, 'request')}, "
        f"about {words.seconds(estimated_run_s(plan, profile))}",
        highlight=False,
    )


def print_plan(console: Console, prepared: Prepared) -> None:
    """--dry-run: every server start and cell."""
    table = Table(title="plan", title_justify="left")
    for name in ("server", "repeat", "suite", "C", "prompts", "max tokens", "about"):
        table.add_column(name, justify="left" if name in ("server", "suite") else "right")
    plan, profile = prepared.plan, prepared.profile
    for group in plan.groups:
        for i, cell in enumerate(plan.cells_of(group)):
            table.add_row(
                group.label if i == 0 else "",
                str(group.repeat) if i == 0 else "",
                cell.suite,
                str(cell.concurrency),
                str(cell.num_prompts)
                if cell.num_requests == cell.num_prompts
                else f"{cell.num_prompts} ({cell.num_requests} turns)",
                str(cell.max_tokens),
                words.seconds(estimated_s(plan, profile, cell)),
            )
    console.print(table)


def findings_list(results: Sequence[CellResult], failures: Mapping[str, str]) -> Text:
    """What a reader of the table must know: what failed and why, then each kind of finding."""
    text = Text()
    for label, why in failures.items():
        text.append("FAILED   ", style=_COLOURS["FAILED"])
        text.append(f"{label}: {why.splitlines()[0]}\n")
    for line in grouped_findings(results):
        text.append(f"{line.standing:<8} ", style=_COLOURS.get(line.standing, "dim"))
        text.append(f"{line.where}: {line.text}\n")
    return text


def result_table(rows: Sequence[Row], width: int = 140) -> Group:
    """method x K x C for each suite; intervals where `width` columns have room for them."""
    interval = width >= 105
    names = ["K", "OTPS", "vs baseline", "vs EAGLE-3", "AL", "TTFT ms", "TPOT ms"]
    if width < 90:  # narrow terminals keep what the question was about
        names = ["K", "OTPS", "vs baseline", "AL", "TPOT ms"] if width >= 74 else names[:3]
    tables = []
    for suite in dict.fromkeys(r.suite for r in rows):
        table = Table(title=suite, title_justify="left")
        table.add_column("C", justify="right", no_wrap=True)
        table.add_column("method", no_wrap=True)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        shown = [r for r in rows if r.suite == suite]
        for concurrency in dict.fromkeys(r.concurrency for r in shown):
            for row in (r for r in shown if r.concurrency == concurrency):
                values = {
                    "K": words.depth(row.depth),
                    "OTPS": words.rate(row.output_tok_per_s),
                    "vs baseline": words.speedup(row.versus_baseline, interval),
                    "vs EAGLE-3": words.speedup(row.versus_eagle3, interval),
                    "AL": words.length(row.acceptance_length),
                    "TTFT ms": words.milliseconds(row.ttft_s),
                    "TPOT ms": words.milliseconds(row.tpot_s),
                }
                # An INVALID row is seen, and not to be quoted.
                strike = "strike" if row.standing == "INVALID" else ""
                table.add_row(
                    str(concurrency),
                    words.method_title(row),
                    *(Text(values[name], style="" if name == "K" else strike) for name in names),
                    Text(row.standing, style=_COLOURS[row.standing]),
                )
            table.add_section()
        tables.append(table)
    return Group(*tables)
