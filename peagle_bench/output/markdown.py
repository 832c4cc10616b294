"""report.md: a run for a pull request or a wiki, from rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.analysis.estimate import DraftEstimate
from peagle_bench.analysis.law import Law
from peagle_bench.analysis.lossless import Match
from peagle_bench.analysis.peak import Peak
from peagle_bench.analysis.table import Row, best_rows
from peagle_bench.core.plan import Plan, RunConfig
from peagle_bench.core.result import STANDS, CellResult
from peagle_bench.core.suite import NO_CATEGORY
from peagle_bench.output import words
from peagle_bench.output.explained import (
    accuracy_table,
    estimate_table,
    interval_table,
    law_table,
    match_table,
    peak_table,
    step_times,
)
from peagle_bench.output.findings import grouped_findings


def report_md(
    *,
    plan: Plan,
    manifest: Mapping[str, Any],
    rows: Sequence[Row],
    results: Sequence[CellResult],
    failures: Mapping[str, str],
    servers: Mapping[str, Mapping[str, Any]],
    charts: Sequence[Path],
    estimates: Sequence[DraftEstimate] = (),
    laws: Sequence[Law] = (),
    matches: Sequence[Match] = (),
    peaks: Sequence[Peak] = (),
) -> str:
    """The whole report.

    failures: error by group label. servers: command.json by group slug. charts: PNG paths inside
    the run folder's charts/.
    """
    facts = manifest["provenance"]
    parts = [f"# {', '.join(plan.suites)} on {plan.config.profile}", ""]
    parts += [*_headlines(rows), ""]
    if facts["estimate"]:
        parts += [f"> **ESTIMATE.** These numbers come {facts['estimate']}.", ""]
    for suite in plan.suites:
        parts += [f"## {suite}", ""]
        for stamp in facts["suites"].get(suite, {}).get("stamps", ()):
            parts += [f"> **{stamp['text']}**", ""]
        parts += [*_table([r for r in rows if r.suite == suite]), ""]
        parts += [f"![{p.stem}](charts/{p.name})" for p in charts if p.name.startswith(f"{suite}-")]
        parts += [""]
    parts += peak_table(peaks)
    parts += interval_table(rows)
    parts += step_times(rows, results)
    parts += estimate_table(estimates)
    parts += law_table(laws)
    temperatures = {n: told["temperature"] for n, told in facts["suites"].items()}
    parts += match_table(matches, temperatures)
    parts += accuracy_table(results)
    parts += _positions(rows)
    parts += _lengths_by(
        rows,
        "category",
        {id(r): {_category(c): v for c, v in r.by_category.items()} for r in rows},
    )
    parts += _lengths_by(
        rows, "turn", {id(r): {f"turn {t}": v for t, v in r.by_turn.items()} for r in rows}
    )
    parts += _findings(results, failures)
    parts += _how(plan, facts, servers)
    return "\n".join(parts).rstrip() + "\n"


def _headlines(rows: Sequence[Row]) -> list[str]:
    """One sentence per suite and concurrency: each method's best K against the baseline."""
    lines = []
    best = best_rows(rows)
    for suite, concurrency in dict.fromkeys((r.suite, r.concurrency) for r in rows):
        parts = []
        for row in best.values():
            if (row.suite, row.concurrency) == (suite, concurrency) and words.stands(row):
                parts.append(
                    f"{words.method_title(row)} K={row.depth} serves "
                    f"{words.rate(row.output_tok_per_s)} tok/s, "
                    f"{words.speedup(row.versus_baseline)} the baseline"
                    + (
                        f" and {words.speedup(row.versus_eagle3)} EAGLE-3 at the same K"
                        if words.speedup(row.versus_eagle3) != words.NONE
                        else ""
                    )
                )
        if parts:
            lines.append(f"- **{suite}, C={concurrency}:** {'; '.join(parts)}.")
    if lines:
        return lines
    if any(r.method == "baseline" for r in rows):
        return ["No speedup stands: see the verdicts below."]
    for row in rows:
        ratio = words.speedup(row.versus_eagle3)
        if ratio != words.NONE:
            lines.append(
                f"- **{row.suite}, C={row.concurrency}:** {words.method_title(row)} K={row.depth} "
                f"serves {words.rate(row.output_tok_per_s)} tok/s, {ratio} EAGLE-3 at the same K."
            )
    return [*lines, "", "No baseline was measured."] if lines else ["No baseline was measured."]


def _table(rows: Sequence[Row]) -> list[str]:
    head = (
        "C",
        "method",
        "K",
        "OTPS (tok/s)",
        "vs baseline [95 %]",
        "vs EAGLE-3, same K [95 %]",
        "AL",
        "emitted/step",
        "TTFT p50 (ms)",
        "TPOT (ms)",
        "tokens/reply",
        "verdict",
    )
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---:', ':---', *['---:'] * 9, ':---'])}|"]
    for r in sorted(rows, key=lambda r: r.concurrency):
        cells: tuple[str, ...] = (
            str(r.concurrency),
            words.method_title(r),
            words.depth(r.depth),
            _throughput(r),
            words.speedup(r.versus_baseline),
            words.speedup(r.versus_eagle3),
            words.length(r.acceptance_length),
            words.length(r.emitted_length),
            words.milliseconds(r.ttft_s),
            words.milliseconds(r.tpot_s),
            words.rate(r.output_tokens_mean),
            r.standing,
        )
        if r.standing == "INVALID":  # seen, and not to be quoted
            struck = (c if c == words.NONE else f"~~{c}~~" for c in cells[3:-1])
            cells = (*cells[:3], *struck, r.standing)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _throughput(row: Row) -> str:
    """`12.8`, and over repeats the smallest and the largest: `12.8 (12.1 to 13.4)`."""
    text = words.rate(row.output_tok_per_s)
    if row.output_tok_per_s_low is None or row.output_tok_per_s_high is None:
        return text
    low, high = words.rate(row.output_tok_per_s_low), words.rate(row.output_tok_per_s_high)
    return f"{text} ({low} to {high})"


def _positions(rows: Sequence[Row]) -> list[str]:
    told = [r for r in rows if r.by_position is not None and r.standing in STANDS]
    if not told:
        return []
    most = max(len(r.by_position or ()) for r in told)
    head = " | ".join(f"{i}" for i in range(1, most + 1))
    lines = [
        "## Acceptance by draft position",
        "",
        f"| suite | C | method | K | {head} |",
        f"|:---|---:|:---|---:|{'---:|' * most}",
    ]
    for r in told:
        shares = [f"{s:.0%}" for s in r.by_position or ()]
        shares += [""] * (most - len(shares))
        lines.append(
            f"| {r.suite} | {r.concurrency} | {words.method_title(r)} | {words.depth(r.depth)} | "
            f"{' | '.join(shares)} |"
        )
    return [*lines, ""]


def _category(name: str) -> str:
    """As a table's head; rows without a category are not all rows."""
    return "no category" if name == NO_CATEGORY else name.replace("|", "\\|")


def _lengths_by(
    rows: Sequence[Row], what: str, told: Mapping[int, Mapping[str, float]]
) -> list[str]:
    """Acceptance length by category or turn, where a suite has more than one.

    told: by identity of a row.
    """
    lines: list[str] = []
    for suite in dict.fromkeys(r.suite for r in rows):
        shown = [r for r in rows if r.suite == suite and told[id(r)] and r.standing in STANDS]
        names = list(dict.fromkeys(name for r in shown for name in told[id(r)]))
        if len(names) < 2:
            continue
        lines += [
            f"## Acceptance length by {what}: {suite}",
            "",
            f"| C | method | K | {' | '.join(names)} |",
            f"|---:|:---|---:|{'---:|' * len(names)}",
        ]
        for r in shown:
            values = " | ".join(words.length(told[id(r)].get(n)) for n in names)
            lines.append(
                f"| {r.concurrency} | {words.method_title(r)} | {words.depth(r.depth)} | {values} |"
            )
        lines += [""]
    return lines


def _findings(results: Sequence[CellResult], failures: Mapping[str, str]) -> list[str]:
    lines = ["## Verdicts", ""]
    for label, why in failures.items():
        first, *rest = why.splitlines()
        lines.append(f"- **FAILED** {label}: {first}")
        if rest:
            lines += ["", "  ```text", *(f"  {line}" for line in rest), "  ```", ""]
    for line in grouped_findings(results):
        shown = line.standing if line.standing == "flag" else f"**{line.standing}**"
        lines.append(f"- {shown} {line.where}: {line.text}")
    if len(lines) == 2:
        lines.append("Every cell is VALID and nothing is flagged.")
    return [*lines, ""]


def _how(
    plan: Plan, facts: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    machine, software, config = facts["machine"], facts["software"], plan.config
    gpus = ", ".join(f"{g['name']} (driver {g['driver']})" for g in machine["gpus"]) or "none"
    lines = [
        "## How it was measured",
        "",
        f"- started {facts['started']}; profile {config.profile}: {facts['profile_chosen']}",
        f"- machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"GPUs: {gpus}; load average before the run {machine['load_average_1min']:.2f}"
        + (" (**busy**: times are longer and noisier)" if machine["busy"] else ""),
        f"- vLLM {software['vllm'] or 'not told'}; peagle-bench {software['peagle_bench']} "
        f"({(software['commit'] or 'no commit')[:13]}); Python {software['python']}",
        f"- {config.repeats} repeat(s) on fresh servers, {config.warmup} warm-up request(s) per "
        f"cell, seed {config.seed}, temperature "
        f"{'as the suite says' if config.temperature is None else config.temperature}",
    ]
    for name, suite in facts["suites"].items():
        lines.append(_suite_line(name, suite, config))
    lines += [
        "",
        "Speedups are ratios of OTPS; intervals are 95 %, from a paired bootstrap over "
        "prompts. AL counts the bonus token, as vLLM does.",
        "",
    ]
    env: Mapping[str, str] = next((r["env"] for r in servers.values() if r.get("env")), {})
    if env:
        told = ", ".join(f"`{k}={v}`" for k, v in env.items())
        lines += [f"Every server's environment: {told}", ""]
    lines += ["| server | ready after (s) | command |", "|:---|---:|:---|"]
    for slug, row in servers.items():
        start = row.get("start_s")
        shown = words.NONE if start is None else f"{start:.0f}"
        lines.append(f"| {slug} | {shown} | `{row.get('command', '')}` |")
    for session in facts.get("sessions", []):
        lines.append(f"Went on {session['started']} (commit {(session['commit'] or 'none')[:13]}).")
    lines += ["", "Again:", "", "```sh", " ".join(_quoted(facts["argv"])), "```"]
    return lines


def _suite_line(name: str, suite: Mapping[str, Any], config: RunConfig) -> str:
    """What was asked, and where it came from."""
    told, turns = suite["facts"], suite["requests"] > suite["prompts"]
    asked = f"{suite['prompts']} of {told['available']} prompts"
    if suite["prompts"] > told["available"]:
        asked = f"{suite['prompts']} prompts, repeated from {told['available']}"
    if turns:
        asked += f", {suite['requests']} turns"
    chosen = [*config.categories, *([config.tier] if config.tier else [])]
    if chosen:
        asked += f" (only {', '.join(chosen)}, out of {told['loaded']})"
    revision = f" at {str(told['revision'])[:12]}" if told.get("revision") else ""
    line = (
        f"- {name} version {suite['version']}: {asked}, digest `{suite['digest'][:16]}`; "
        f"{told.get('source') or suite['source']}{revision}; licence: {suite['license']}"
    )
    if turns:
        line += (
            "; conversations were spoken once and replayed to every other cell, so that all saw "
            "the same prompts"
            if config.replay_turns
            else "; every cell spoke its own conversations, whose later prompts may differ"
        )
    return line


def _quoted(argv: Sequence[str]) -> list[str]:
    import shlex

    return [shlex.quote(a) for a in argv]
