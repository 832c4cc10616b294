"""The probe's files, read by the harness."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from peagle_bench.core.step import Step
from peagle_bench.probe.ring import StepRecord, read_ring


@dataclass(frozen=True, slots=True)
class Probed:
    """What a server's probe left."""

    steps: tuple[Step, ...] = ()
    unavailable: str | None = None
    """Why there are no steps; None when the probe is there."""


def steps_between(folder: Path, start_ns: int, end_ns: int) -> Probed:
    """Steps that began in [start_ns, end_ns) of CLOCK_MONOTONIC, in order, of the first worker
    that has any: workers of one tensor-parallel group all see the same steps.
    """
    status = [_status(p) for p in sorted(folder.glob("status-*.json"))]
    if not status:
        return Probed(unavailable="the server did not load the probe (is peagle-bench installed "
                      "beside its vLLM?)")  # fmt: skip
    reasons = [s["why"] for s in status if s.get("state") == "unavailable"]
    if reasons:
        return Probed(unavailable=reasons[0])
    for path in sorted(folder.glob("*.steps")):
        try:
            records = read_ring(path)
        except (OSError, ValueError) as error:
            return Probed(unavailable=str(error))
        found = tuple(_step(r, start_ns) for r in records if start_ns <= r.start_ns < end_ns)
        if found:
            return Probed(found)
    return Probed(unavailable="the probe recorded no step during the cell")


def _step(record: StepRecord, origin_ns: int) -> Step:
    return Step(
        start_ns=record.start_ns - origin_ns,
        num_reqs=record.num_reqs,
        num_tokens=record.num_tokens,
        new_reqs=record.new_reqs,
        verified=record.verified,
        depth=record.depth,
        forward_s=_told(record.forward_s),
        sample_s=_told(record.sample_s),
        draft_s=_told(record.draft_s),
        interval_s=_told(record.interval_s),
    )


def _told(value: float) -> float | None:
    return None if math.isnan(value) else value


def _status(path: Path) -> dict[str, str]:
    try:
        held = json.loads(path.read_text())
        return {str(k): str(v) for k, v in held.items()}
    except (OSError, ValueError, AttributeError):
        return {"state": "unavailable", "why": f"{path.name} cannot be read"}
