"""Which sandboxes work here, and a problem small enough to attack."""

from __future__ import annotations

import itertools
import os
import textwrap
import time
from collections.abc import Callable

import psutil
import pytest

from peagle_bench.scoring.sandbox import SAFE_KINDS, Job, Kind, Limits, Sandbox, why_not

WORKING = [kind for kind in SAFE_KINDS if why_not(kind) is None]
REASONS = "; ".join(f"{kind}: {why_not(kind)}" for kind in SAFE_KINDS)
_COUNT = itertools.count(1)

Attack = Callable[..., Job]


def kinds(*more: Kind) -> list[object]:
    """Every safe kind that works, then `more`; a skipped one where neither safe kind works."""
    safe: list[object] = [*WORKING]
    return [*(safe or [pytest.param("none", marks=pytest.mark.skip(reason=REASONS))]), *more]


@pytest.fixture(params=kinds())
def safe(request: pytest.FixtureRequest) -> Sandbox:
    """Each safe kind, with little time, and file_bytes by which its processes are known."""
    marked = (16 << 20) + os.getpid() * 1000 + next(_COUNT)
    return Sandbox(request.param, Limits(cpu_s=1, wall_s=4, file_bytes=marked))


@pytest.fixture(params=kinds("unsafe"))
def any_kind(request: pytest.FixtureRequest) -> Sandbox:
    marked = (16 << 20) + os.getpid() * 1000 + next(_COUNT)
    return Sandbox(request.param, Limits(cpu_s=1, wall_s=4, file_bytes=marked))


def doubles(program: str, test: str = "assert candidate(2) == 4") -> Job:
    """The problem: double a number."""
    body = textwrap.indent(textwrap.dedent(test), "    ")
    return Job(textwrap.dedent(program), "double", f"def check(candidate):\n{body}\n")


def left_behind(sandbox: Sandbox, wait_s: float = 3.0) -> list[int]:
    """Processes of this sandbox that still live after at most `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = " ".join(process.info["cmdline"] or [])
            if f'"file_bytes": {sandbox.limits.file_bytes}' in words:
                found.append(process.pid)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
