"""`report`: everything that is shown of a run, from its stored records alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peagle_bench.analysis.compare import checked_together, prompts_agree, speedups
from peagle_bench.analysis.estimate import DraftEstimate, draft_estimates
from peagle_bench.analysis.law import Law, laws
from peagle_bench.analysis.lossless import Match, flagged, matches
from peagle_bench.analysis.peak import Peak, peaks
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.table import Row, build_rows
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Plan
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult, Comparison, Finding
from peagle_bench.errors import StoredRunError
from peagle_bench.output.charts import write_charts
from peagle_bench.output.export import cells_csv
from peagle_bench.output.markdown import report_md
from peagle_bench.store import RunFolder


@dataclass(frozen=True, slots=True)
class Reported:
    """A run, computed again."""

    plan: Plan
    rows: list[Row]
    results: list[CellResult]
    comparisons: list[Comparison]
    failures: dict[str, str]
    """Why there are no numbers, by server group or cell."""
    estimates: list[DraftEstimate]
    laws: list[Law]
    matches: list[Match]
    peaks: list[Peak]

    @property
    def sound(self) -> bool:
        """Every row has numbers that may be quoted, or is an agreed estimate."""
        return all(r.standing in ("VALID", "ESTIMATE") for r in self.rows)


def analyse(folder: RunFolder) -> Reported:
    """Every metric, verdict and speedup from the stored records.

    A cell that cannot be read is named in `failures` and left out. Raises StoredRunError for a
    folder that is no run.
    """
    plan, manifest = folder.plan(), folder.manifest()
    facts = manifest["provenance"]
    data: dict[str, CellData] = {}
    results: list[CellResult] = []
    failures: dict[str, str] = {}
    failed: set[str] = set()
    for group in plan.groups:
        why = folder.read_failure(group)
        if why is not None:
            failed.add(group.slug)
            failures[f"{group.label} (repeat {group.repeat})"] = why
    for cell in plan.cells:
        if not folder.has_cell(cell):
            continue
        try:
            read, told = folder.read_data(cell), folder.read_facts(cell)
        except StoredRunError as error:
            failures[cell.label] = f"{error} (--resume measures it again)"
            failed.add(cell.group.slug)
            continue
        data[cell.cell_id] = read
        terms = Terms(
            served_name=facts["served_name"],
            trained_depth=facts["trained_depths"].get(cell.group.method),
            estimate=facts["estimate"],
            stamps=_stamps(facts["suites"].get(cell.suite)),
            rendering=told.get("rendering") if told.get("rendering_differs") else None,
        )
        results.append(summarise(cell, read, terms, told))
    servers = {g.slug: _facts(folder.read_server(g)) for g in plan.groups}
    results = checked_together(results, servers)
    results = prompts_agree(results, data, replayed=plan.config.replay_turns)
    temperatures = {name: told["temperature"] for name, told in facts["suites"].items()}
    found = matches(results, data, {name: t == 0 for name, t in temperatures.items()})
    results = flagged(results, found)
    comparisons = [
        c
        for versus in ("baseline", "eagle3")
        if versus in plan.config.methods
        for c in speedups(results, data, versus, seed=plan.config.seed)
        if not (versus == "eagle3" and c.method == "baseline")
    ]
    rows = build_rows(plan, results, comparisons, failed)
    return Reported(
        plan,
        rows,
        results,
        comparisons,
        failures,
        draft_estimates(results, data),
        laws(results, data),
        found,
        peaks(results, data, plan.config.seed),
    )


def _stamps(told: Any) -> tuple[Finding, ...]:
    """What the manifest says must be said of a suite."""
    held = told.get("stamps", ()) if isinstance(told, dict) else ()
    return tuple(Finding.model_validate(s) for s in held)


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    facts = row.get("facts")
    return facts if isinstance(facts, dict) else {}


def write_report(folder: RunFolder, reported: Reported) -> None:
    """cells.csv, charts/ and report.md. Raises FolderUnusable where they cannot be written."""
    manifest = folder.manifest()
    plan = reported.plan
    with folder.charts() as where:
        suites = manifest["provenance"]["suites"]
        stamps = {n: [f.text for f in _stamps(told)] for n, told in suites.items()}
        charts = write_charts(reported.rows, where, _fingerprint(manifest), stamps)
    servers = {g.slug: row for g in plan.groups if (row := folder.read_server(g))}
    text = report_md(
        plan=plan,
        manifest=manifest,
        rows=reported.rows,
        results=reported.results,
        failures=reported.failures,
        servers=servers,
        charts=charts,
        estimates=reported.estimates,
        laws=reported.laws,
        matches=reported.matches,
        peaks=reported.peaks,
    )
    folder.write_text("report.md", text)
    folder.write_text("cells.csv", cells_csv(reported.results))


def _fingerprint(manifest: dict[str, Any]) -> str:
    """What a chart's footer says of its run: profile, machine, vLLM, plan."""
    facts = manifest["provenance"]
    gpus = sorted({g["name"] for g in facts["machine"]["gpus"]})
    where = ", ".join(gpus) or facts["machine"]["cpu"]
    return (
        f"{manifest['plan']['config']['profile']} · {where} · "
        f"vLLM {facts['software']['vllm'] or 'not told'} · "
        f"plan {manifest['plan_digest'][:8]} · {facts['started'][:10]}"
    )
