"""Why a speedup is what it is, and whether outputs are still the target's: report.md's tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from peagle_bench.analysis.estimate import DraftEstimate
from peagle_bench.analysis.law import LARGEST_GAP, Law
from peagle_bench.analysis.lossless import Match
from peagle_bench.analysis.peak import Peak
from peagle_bench.analysis.table import Row
from peagle_bench.core.method import METHODS
from peagle_bench.core.result import STANDS, CellResult
from peagle_bench.output import words


def peak_table(peaks: Sequence[Peak]) -> list[str]:
    """Each method at its own best K."""
    if not peaks:
        return []
    lines = [
        "## Peak: each method at its best K",
        "",
        "K chosen on one half of the prompts, the ratio of tokens per second of service taken on "
        "the other: the best of several is partly the luckiest.",
        "",
        "| suite | C | method | best K | against | its K | ratio [95 %] | prompts |",
        "|:---|---:|:---|---:|:---|---:|---:|---:|",
    ]
    for p in peaks:
        ratio = f"{p.speedup:.2f}x"
        if p.low is not None and p.high is not None:
            ratio += f" [{p.low:.2f}, {p.high:.2f}]"
        lines.append(
            f"| {p.suite} | {p.concurrency} | {METHODS[p.method].title} | {words.depth(p.depth)} | "
            f"{METHODS[p.versus].title} | {words.depth(p.versus_depth)} | {ratio} | {p.prompts} |"
        )
    return [*lines, ""]


def interval_table(rows: Sequence[Row]) -> list[str]:
    """Each row's own figures with their intervals."""
    shown = [r for r in rows if r.intervals and r.standing in STANDS]
    if not shown:
        return []
    lines = [
        "## 95 % intervals over prompts",
        "",
        "| suite | C | method | K | OTPS (tok/s) | mean TTFT (ms) | mean TPOT (ms) | AL |",
        f"|:---|---:|:---|---:|{'---:|' * 4}",
    ]
    kinds = (
        ("output_tok_per_s", words.rate),
        ("ttft_s_mean", words.milliseconds),
        ("tpot_s_mean", words.milliseconds),
        ("acceptance_length", words.length),
    )
    for r in shown:
        cells = []
        for name, word in kinds:
            held = r.intervals.get(name)
            cells.append(words.NONE if held is None else f"{word(held[0])} to {word(held[1])}")
        lines.append(
            f"| {r.suite} | {r.concurrency} | {words.method_title(r)} | {words.depth(r.depth)} | "
            f"{' | '.join(cells)} |"
        )
    return [*lines, ""]


def step_times(rows: Sequence[Row], results: Sequence[CellResult]) -> list[str]:
    """Where a step's time goes, or why that is not known."""
    told = [r for r in rows if r.step_s is not None and r.standing in STANDS]
    whys = dict.fromkeys(str(r.facts.get("probe", "")) for r in results)
    missing = [why for why in whys if why and not why.endswith(" steps")]
    lines = ["## Where a step's time goes", ""]
    if not told:
        return [*lines, f"Probe unavailable: {missing[0]}.", ""] if missing else []
    lines += [
        "Mean milliseconds of a decode step with C requests in its batch, timed inside the server; "
        "the rest is scheduling, preparing inputs and outputs.",
        "",
        "| suite | C | method | K | step | target's forward | sampling | drafting | rest | "
        "drafting of step |",
        f"|:---|---:|:---|---:|{'---:|' * 6}",
    ]
    for r in told:
        share = "" if r.draft_s is None or not r.step_s else f"{r.draft_s / r.step_s:.0%}"
        times = (r.step_s, r.forward_s, r.sample_s, r.draft_s, r.host_s)
        values = " | ".join(words.milliseconds(t) for t in times)
        lines.append(
            f"| {r.suite} | {r.concurrency} | {words.method_title(r)} | {words.depth(r.depth)} | "
            f"{values} | {share or words.NONE} |"
        )
    lines += ["", *(f"- {s}" for s in words.explanations(rows)), ""]
    if missing:
        lines += [f"Not every cell was probed: {missing[0]}.", ""]
    return lines


def estimate_table(estimates: Sequence[DraftEstimate]) -> list[str]:
    """Drafter latency as it shows from outside, beside the probe's."""
    if not estimates:
        return []
    lines = [
        "## Drafter latency seen from outside",
        "",
        "How the time between chunks grows with K, less the growth of a method that drafts in "
        "parallel: milliseconds of one more sequential draft.",
        "",
        "| suite | C | method | less | one more draft | standard error | by the probe |",
        f"|:---|---:|:---|:---|{'---:|' * 3}",
    ]
    for e in estimates:
        less = words.NONE if e.less is None else METHODS[e.less].title
        lines.append(
            f"| {e.suite} | {e.concurrency} | {METHODS[e.method].title} | {less} | "
            f"{words.milliseconds(e.per_draft_s)} | {words.milliseconds(e.error_s)} | "
            f"{words.milliseconds(e.probe_per_draft_s)} |"
        )
    return [*lines, ""]


def law_table(laws: Sequence[Law]) -> list[str]:
    """Predicted beside measured."""
    if not laws:
        return []
    lines = [
        "## The law: AL x t_step(baseline) / t_step(method)",
        "",
        "| suite | C | method | K | AL | step (ms) | baseline's step (ms) | from | predicted | "
        "measured (decoding) | gap |",
        f"|:---|---:|:---|---:|{'---:|' * 3}:---|{'---:|' * 3}",
    ]
    for law in laws:
        wide = " **!**" if abs(law.gap) > LARGEST_GAP else ""
        lines.append(
            f"| {law.suite} | {law.concurrency} | {METHODS[law.method].title} | "
            f"{words.depth(law.depth)} | {law.acceptance_length:.2f} | "
            f"{words.milliseconds(law.step_s)} | {words.milliseconds(law.baseline_step_s)} | "
            f"{law.source} | {law.predicted:.2f}x | {law.measured:.2f}x | {law.gap:+.1%}{wide} |"
        )
    lines += ["", "A gap above 5 % is marked."]
    for law in laws:
        if law.emitted_length is not None and law.emitted_length < 0.98 * law.acceptance_length:
            lines.append(
                f"{METHODS[law.method].title} K={law.depth}, {law.suite}, C={law.concurrency}: "
                f"{law.emitted_length:.2f} tokens a step were emitted, not "
                f"{law.acceptance_length:.2f}: drafts were accepted beyond a stop or the cap."
            )
    return [*lines, ""]


def match_table(matches: Sequence[Match], temperatures: Mapping[str, float]) -> list[str]:
    """Lossless: token for token the baseline's; and why not, where outputs are drawn."""
    drawn = [f"{name} at temperature {t:g}" for name, t in temperatures.items() if t > 0]
    if not matches and not drawn:
        return []
    lines = ["## Lossless", ""]
    if matches:
        lines += [
            "Greedy outputs that are the baseline's, token for token.",
            "",
            "| suite | C | method | K | equal | of | share | first difference at token |",
            f"|:---|---:|:---|---:|{'---:|' * 3}:---|",
        ]
    for m in matches:
        share = words.NONE if m.share is None else f"{m.share:.1%}"
        at = ", ".join(map(str, m.first_differences[:8]))
        more = ", …" if len(m.first_differences) > 8 else ""
        lines.append(
            f"| {m.suite} | {m.concurrency} | {METHODS[m.method].title} | {words.depth(m.depth)} | "
            f"{m.equal} | {m.compared} | {share} | {at or words.NONE}{more} |"
        )
    if matches and not any(m.method == "baseline" for m in matches):
        lines += ["", "How far the baseline differs from itself, only --repeats 2 shows."]
    if drawn:
        lines += [
            *([""] if matches else []),
            f"Outputs are drawn ({', '.join(drawn)}) and not compared token by token; that their "
            "mean lengths agree is checked (flag lengths-differ).",
        ]
    return [*lines, ""]


def _answered(result: CellResult) -> float:
    """Requests that succeeded."""
    return (result.metrics["requests"] or 0.0) - (result.metrics["failed_requests"] or 0.0)


def accuracy_table(results: Sequence[CellResult]) -> list[str]:
    """pass@1 of the outputs that were timed, repeats pooled."""
    groups: dict[tuple[str, int, str, int | None], list[CellResult]] = defaultdict(list)
    for r in results:
        if r.scores and r.verdict.standing in STANDS:
            c = r.cell
            groups[(c.suite, c.concurrency, c.group.method, c.group.depth)].append(r)
    if not groups:
        return []
    lines = [
        "## Accuracy of the outputs that were timed",
        "",
        "| suite | C | method | K | passed | scored | pass@1 [95 %] | no code | cut off | sandbox "
        "failed |",
        f"|:---|---:|:---|---:|{'---:|' * 6}",
    ]
    for (suite, concurrency, method, depth), found in groups.items():
        counts: Counter[str] = Counter()
        for r in found:
            counts.update(r.scores)
        scored = sum(counts.values()) - counts["infra_error"]
        none = counts["no_code"] + counts["thinking_only"]
        cut = sum((r.metrics["truncated_share"] or 0.0) * _answered(r) for r in found)
        lines.append(
            f"| {suite} | {concurrency} | {METHODS[method].title} | {words.depth(depth)} | "
            f"{counts['passed']} | {scored} | {words.share(counts['passed'], scored)} | {none} | "
            f"{cut:.0f} | {counts['infra_error']} |"
        )
    return [*lines, "", "Replies cut off at the output cap are scored, and mostly fail.", ""]
