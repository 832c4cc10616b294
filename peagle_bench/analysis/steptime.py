"""Where a step's time goes, from the probe's records; and what it says of a speedup.

Only steps that decode and nothing else count, whose step before did so for as many requests: a
prompt in either would be in the interval between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peagle_bench.analysis.stats import mean
from peagle_bench.core.step import Step


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Mean seconds of a decode step's stages at one batch size; they add up to `step_s`."""

    batch: int
    """Requests in the step."""
    steps: int
    step_s: float
    """From one step's start to the next one's."""
    forward_s: float
    sample_s: float
    draft_s: float
    """0 for a server that does not draft."""
    host_s: float
    """The rest: scheduling, input preparation, output, and what was not timed."""


def decode_steps(steps: Sequence[Step]) -> list[tuple[Step, float]]:
    """(step, its seconds): decode steps whose next step is one too, with as many requests.

    A step's seconds are the next step's interval: from its own start to that one's.
    """
    out = []
    for step, after in itertools.pairwise(steps):
        alike = step.decodes_only and after.decodes_only and step.num_reqs == after.num_reqs
        if alike and after.interval_s is not None:
            out.append((step, after.interval_s))
    return out


def by_batch(steps: Sequence[Step]) -> list[StageTimes]:
    """Stage times at each batch size, ascending."""
    batches = sorted({s.num_reqs for s, _ in decode_steps(steps)})
    return [_times(batch, full_steps(steps, batch)) for batch in batches]


def full_steps(steps: Sequence[Step], batch: int) -> list[tuple[Step, float]]:
    """The decode steps of `batch` requests, with their seconds."""
    return [(s, t) for s, t in decode_steps(steps) if s.num_reqs == batch]


def at_concurrency(steps: Sequence[Step], concurrency: int) -> StageTimes | None:
    """Stage times while the batch was full; None when it never was."""
    full = full_steps(steps, concurrency)
    return _times(concurrency, full) if full else None


def verified(steps: Sequence[Step]) -> int:
    """Drafts verified in all steps: what the server's counter must have gone up by."""
    return sum(s.verified for s in steps)


def _times(batch: int, held: Sequence[tuple[Step, float]]) -> StageTimes:
    def average(stage: Callable[[Step], float | None]) -> float:
        return mean([stage(s) or 0.0 for s, _ in held]) or 0.0

    step_s = mean([t for _, t in held]) or 0.0
    forward_s, sample_s = average(lambda s: s.forward_s), average(lambda s: s.sample_s)
    draft_s = average(lambda s: s.draft_s)
    return StageTimes(
        batch=batch,
        steps=len(held),
        step_s=step_s,
        forward_s=forward_s,
        sample_s=sample_s,
        draft_s=draft_s,
        host_s=step_s - forward_s - sample_s - draft_s,
    )
