"""`calibrate`: the harness against a server that knows the truth, and its own error in each figure.

The server writes every step at its due time and keeps its own record of when it wrote the first and
the last token of each request. What the harness reports beyond that record is the harness's error:
the part of any number that is the client.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from peagle_bench.analysis.estimate import draft_estimates
from peagle_bench.analysis.metrics import BY_NAME
from peagle_bench.bench import Bench
from peagle_bench.core.plan import Cell, ServerGroup
from peagle_bench.core.record import CellData
from peagle_bench.core.result import CellResult, Deviation
from peagle_bench.planning import Prepared, prepare, resolve
from peagle_bench.runner import begin
from peagle_bench.store import RunFolder
from peagle_bench.targets import calibration
from peagle_bench.targets.process import Server

DEPTHS = (3, 5, 7)
OTPS_BOUND = 0.01
LATENCY_BOUND_S = 0.001
LATENCY_BOUND = 0.01


def calibrate(
    concurrency: Sequence[int], requests: int, max_tokens: int, say: Callable[[str], None]
) -> list[Deviation]:
    """Every metric's error at each concurrency, for the baseline, EAGLE-3 and P-EAGLE.

    requests: prompts a cell, at least the largest concurrency. Raises ServerError.
    """
    errors: list[Deviation] = []
    results: list[CellResult] = []
    data: dict[str, CellData] = {}
    with tempfile.TemporaryDirectory(prefix="peagle-bench-calibrate-") as where:
        prompts = Path(where) / "calibration.jsonl"
        count = max(requests, *concurrency)
        # Each its own, so that the server's record of it can be found.
        rows = ({"id": n, "prompt": f"calibration request {n}"} for n in range(count))
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config, profile, why = resolve(
            {
                "profile": "calibration",
                "suites": (str(prompts),),
                "methods": ("baseline", "eagle3", "peagle"),
                "depths": DEPTHS,
                "concurrency": tuple(concurrency),
                "limit": 0,
                "max_tokens": max_tokens,
            }
        )
        prepared = prepare(config, profile, why)
        folder = RunFolder.create(Path(where) / "run")
        begin(prepared, folder)
        for group in prepared.plan.groups:
            say(f"{group.label} at C {', '.join(map(str, concurrency))}")
            for cell, result, served in _measured(prepared, folder, group):
                data[cell.cell_id] = folder.read_data(cell)
                results.append(result)
                errors += _errors(prepared, cell, result, data[cell.cell_id], served)
        return errors + _draft_errors(prepared, results, data)


def _measured(
    prepared: Prepared, folder: RunFolder, group: ServerGroup
) -> Iterator[tuple[Cell, CellResult, list[calibration.Served]]]:
    """Each cell of a group, and the server's own record of its requests."""
    spec = calibration.server_spec(prepared.profile, group, prepared.plan.config)
    server = Server(spec, folder.server_dir(group) / "server.log")
    try:
        server.start()
        server.wait_ready(60.0)
        bench = Bench(prepared, folder, group, server, {}, {}, lambda _: None)
        for cell in prepared.plan.cells_of(group):
            result = bench.measure(cell)
            told = httpx.get(f"{spec.base_url}/served", timeout=60.0, trust_env=False).json()
            yield cell, result, [calibration.Served(**s) for s in told[-cell.num_requests :]]
    finally:
        server.stop()


def _errors(
    prepared: Prepared,
    cell: Cell,
    result: CellResult,
    data: CellData,
    served: Sequence[calibration.Served],
) -> Iterator[Deviation]:
    """Truth: the server's writes, counted from the moment our first byte left."""
    sent_ns = _sent_ns(prepared, cell, result, data)
    tokens = sum(s.tokens for s in served)
    seconds = (max(s.last_ns for s in served) - min(sent_ns.values())) / 1e9
    ttft = median([(s.first_ns - sent_ns[s.key]) / 1e9 for s in served])
    tpots = [
        (s.last_ns - s.first_ns) / 1e9 / (s.tokens - s.first_tokens)
        for s in served
        if s.tokens > s.first_tokens
    ]
    truths: list[tuple[str, float, float]] = [
        ("output_tok_per_s", tokens / seconds, OTPS_BOUND * tokens / seconds),
        ("ttft_s_p50", ttft, LATENCY_BOUND_S + LATENCY_BOUND * ttft),
        ("tpot_s_p50", median(tpots), LATENCY_BOUND_S + LATENCY_BOUND * median(tpots)),
    ]
    length = _counted_length(data)
    if length is not None:
        truths.append(("acceptance_length", length, 1e-9))
    for name, truth, bound in truths:
        metric = BY_NAME[name]
        measured = metric.compute(data)
        if measured is not None:
            group = cell.group
            yield Deviation(
                method=group.method,
                depth=group.depth,
                concurrency=cell.concurrency,
                metric=name,
                unit=metric.unit,
                truth=truth,
                measured=measured,
                bound=bound,
            )


def _sent_ns(prepared: Prepared, cell: Cell, result: CellResult, data: CellData) -> dict[str, int]:
    """CLOCK_MONOTONIC of each request's sending, by what the server knows it by."""
    prompts = {p.prompt_id: p for p in prepared.selections[cell.suite].prompts}
    start_ns = int(result.facts["start_ns"])
    return {
        calibration.key_of(prompts[r.prompt_id].conversation(())): start_ns + r.sent_ns
        for r in data.records
    }


def _counted_length(data: CellData) -> float | None:
    """Acceptance length by the records of each request, which the server wrote itself."""
    found: Any = BY_NAME["acceptance_length_per_request"].compute(data)
    return None if found is None else float(found)


def _draft_errors(
    prepared: Prepared, results: Sequence[CellResult], data: dict[str, CellData]
) -> list[Deviation]:
    """Time of one more sequential draft, estimated from outside, against the server's flag."""
    truth = float(prepared.profile.flags["draft-ms"]) / 1e3
    return [
        Deviation(
            method=e.method,
            depth=None,
            concurrency=e.concurrency,
            metric="draft_s_est",
            unit="s",
            truth=truth,
            measured=e.per_draft_s,
            bound=LATENCY_BOUND_S / 2,
        )
        for e in draft_estimates(results, data)
    ]
