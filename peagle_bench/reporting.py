"""`report`: everything that is shown of a run, from its stored records alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peagle_bench.analysis.compare import checked_together, speedups
from peagle_bench.analysis.summary import summarise
from peagle_bench.analysis.table import Row, build_rows
from peagle_bench.analysis.validity import Terms
from peagle_bench.core.plan import Plan
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult, Comparison
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
    """Error by group label."""


def analyse(folder: RunFolder) -> Reported:
    """Every metric, verdict and speedup from the stored records. Raises StoredRunError."""
    plan, manifest = folder.plan(), folder.manifest()
    facts = manifest["provenance"]
    data: dict[str, CellData] = {}
    results = []
    for cell in plan.cells:
        if not folder.has_cell(cell):
            continue
        data[cell.cell_id] = folder.read_data(cell)
        terms = Terms(
            served_name=facts["served_name"],
            trained_depth=facts["trained_depths"].get(cell.group.method),
            estimate=facts["estimate"],
        )
        results.append(summarise(cell, data[cell.cell_id], terms, folder.read_facts(cell)))
    servers = {g.slug: folder.read_server(g).get("facts") or {} for g in plan.groups}
    results = checked_together(results, servers)
    comparisons = [
        c
        for versus in ("baseline", "eagle3")
        if versus in plan.config.methods
        for c in speedups(results, data, versus, seed=plan.config.seed)
        if not (versus == "eagle3" and c.method == "baseline")
    ]
    failures = {}
    for group in plan.groups:
        why = folder.read_failure(group)
        if why is not None:
            failures[f"{group.label} (repeat {group.repeat})"] = why
    return Reported(plan, build_rows(plan, results, comparisons), results, comparisons, failures)


def write_report(folder: RunFolder) -> Reported:
    """cells.csv, charts/ and report.md, from the stored records. Raises StoredRunError."""
    reported = analyse(folder)
    manifest = folder.manifest()
    plan = reported.plan
    fingerprint = _fingerprint(manifest)
    charts = write_charts(reported.rows, folder.path / "charts", fingerprint)
    servers = {g.slug: row for g in plan.groups if (row := folder.read_server(g))}
    text = report_md(
        plan=plan,
        manifest=manifest,
        rows=reported.rows,
        results=reported.results,
        failures=reported.failures,
        servers=servers,
        charts=charts,
    )
    folder.write_text("report.md", text)
    folder.write_text("cells.csv", cells_csv(reported.results))
    return reported


def _fingerprint(manifest: dict[str, Any]) -> str:
    """What a chart's footer says of its run: profile, machine, vLLM, plan."""
    facts = manifest["provenance"]
    gpus = sorted({g["name"] for g in facts["machine"]["gpus"]})
    where = ", ".join(gpus) or facts["machine"]["cpu"]
    return (
        f"{manifest['plan']['config']['profile']} · {where} · vLLM {facts['software']['vllm']} · "
        f"plan {manifest['plan_digest'][:8]} · {facts['started'][:10]}"
    )
