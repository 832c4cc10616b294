"""How a stage is timed: by the host's clock on a CPU, by CUDA events on a GPU.

A CUDA event is recorded in the stream and read when it is complete, steps later; nothing ever waits
for the device.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from peagle_bench.probe.ring import StepRecord

Stage = str
Commit = Callable[[StepRecord], None]
MOST_PENDING = 4096
"""Steps whose events may be outstanding; beyond it the oldest is written without times."""


class HostTimer:
    """perf_counter: a CPU's stages run when they are called."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._last_start_s: float | None = None

    def begin(self, record: StepRecord) -> None:
        now = time.perf_counter()
        if self._last_start_s is not None:
            record.interval_s = now - self._last_start_s
        self._last_start_s = now

    def start(self) -> float:
        return time.perf_counter()

    def stop(self, record: StepRecord, stage: Stage, mark: float) -> None:
        spent = time.perf_counter() - mark
        held = getattr(record, stage)
        setattr(record, stage, spent if held != held else held + spent)

    def end(self, record: StepRecord) -> None:
        self._commit(record)

    def drain(self) -> None:
        return


class CudaTimer:
    """Pairs of events on the current stream; a step is written once its last event is complete."""

    def __init__(self, commit: Commit, torch: Any) -> None:
        self._commit, self._torch = commit, torch
        self._free: list[Any] = []
        self._pending: deque[tuple[StepRecord, dict[Stage, list[tuple[Any, Any]]], Any, Any]] = (
            deque()
        )
        self._stages: dict[Stage, list[tuple[Any, Any]]] = {}
        self._start: Any = None
        self._before: Any = None
        """Start event of the step before."""

    def _event(self) -> Any:
        event = self._free.pop() if self._free else self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self, record: StepRecord) -> None:
        self._stages = {}
        self._start = self._event()

    def start(self) -> Any:
        return self._event()

    def stop(self, record: StepRecord, stage: Stage, mark: Any) -> None:
        self._stages.setdefault(stage, []).append((mark, self._event()))

    def end(self, record: StepRecord) -> None:
        self._pending.append((record, self._stages, self._before, self._start))
        self._before = self._start
        self._write_complete()
        if len(self._pending) > MOST_PENDING:
            self._commit(self._pending.popleft()[0])

    def drain(self) -> None:
        """Write what is complete; called when the process ends."""
        self._write_complete()

    def _write_complete(self) -> None:
        while self._pending:
            record, stages, before, start = self._pending[0]
            marks = [e for pairs in stages.values() for pair in pairs for e in pair]
            if not all(e.query() for e in (*marks[-1:], start)):
                return
            self._pending.popleft()
            for stage, pairs in stages.items():
                setattr(record, stage, sum(a.elapsed_time(b) for a, b in pairs) / 1e3)
            if before is not None:
                record.interval_s = before.elapsed_time(start) / 1e3
                self._free.append(before)
            self._free += marks
            self._commit(record)
