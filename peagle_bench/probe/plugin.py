"""The vLLM general plugin. Inert unless PEAGLE_BENCH_PROBE names a folder.

It wraps the methods of the model runner in which a step's stages run, as soon as vLLM imports that
runner. A runner whose inner names are others is served as if the plugin were not there, and says so
in status.json. Nothing that goes wrong in here reaches the server.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from peagle_bench.probe.ring import Ring, StepRecord
from peagle_bench.probe.timers import CudaTimer, HostTimer

VARIABLE = "PEAGLE_BENCH_PROBE"
V1 = "vllm.v1.worker.gpu_model_runner"
V2 = "vllm.v1.worker.gpu.model_runner"
CLASS = "GPUModelRunner"
_NEEDED = {
    V1: ("execute_model", "_model_forward", "_sample"),
    V2: ("execute_model", "sample_tokens", "sample"),
}
_STAGES = {
    V1: {
        "_model_forward": "forward_s",
        "_sample": "sample_s",
        "propose_draft_token_ids": "draft_s",
    },
    V2: {"sample": "sample_s"},
}
_done: set[str] = set()


def register() -> None:
    """What vLLM calls in each of its processes, more than once in some."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    try:
        for name in (V1, V2):
            if name in sys.modules:
                _attach(sys.modules[name], Path(folder))
        if not any(isinstance(f, _Finder) for f in sys.meta_path):
            sys.meta_path.insert(0, _Finder(Path(folder)))
    except Exception as error:  # a server without a probe is better than no server
        _tell(Path(folder), "unavailable", f"{type(error).__name__}: {error}")


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the runner's module being imported, and attaches once it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._busy or name not in (V1, V2):
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        run, folder = spec.loader.exec_module, self._folder

        def exec_module(module: ModuleType) -> None:
            run(module)
            try:
                _attach(module, folder)
            except Exception as error:
                _tell(folder, "unavailable", f"{type(error).__name__}: {error}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _attach(module: ModuleType, folder: Path) -> None:
    name = module.__name__
    if name in _done:
        return
    _done.add(name)
    runner = getattr(module, CLASS, None)
    missing = [n for n in _NEEDED[name] if not hasattr(runner, n)]
    if runner is None or missing:
        what = ", ".join(missing) or CLASS
        _tell(folder, "unavailable", f"{name} of vLLM {_version()} has no {what}")
        return
    probe = Probe(folder, name)
    for method, stage in _STAGES[name].items():
        if hasattr(runner, method):
            setattr(runner, method, probe.timed(getattr(runner, method), stage))
    runner.execute_model = probe.stepping(runner.execute_model)
    if hasattr(runner, "sample_tokens"):
        runner.sample_tokens = probe.finishing(runner.sample_tokens)


class Probe:
    """One process's steps."""

    def __init__(self, folder: Path, module: str) -> None:
        self._folder, self._module = folder, module
        self._timer: HostTimer | CudaTimer | None = None
        self._step: StepRecord | None = None
        self._off = False
        self._wrapped_instance = False

    def timed(self, method: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """`method`, timed as a stage while a step is under way."""

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            step, timer = self._step, self._timer
            if step is None or timer is None:
                return method(*args, **kwargs)
            mark = self._guarded(timer.start)
            try:
                return method(*args, **kwargs)
            finally:
                if mark is not None:
                    self._guarded(timer.stop, step, stage, mark)

        return wrapper

    def stepping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """`execute_model`: a step begins; where it returns a result, the step is over."""

        @functools.wraps(method)
        def wrapper(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            dummy = bool(kwargs.get("dummy_run"))
            if not self._off and not dummy:
                self._guarded(self._begin, runner, scheduler_output)
            result = method(runner, scheduler_output, *args, **kwargs)
            if result is not None and self._step is not None:
                self._guarded(self._end)
            return result

        return wrapper

    def finishing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """`sample_tokens`: the step is over when it returns."""

        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            finally:
                if self._step is not None:
                    self._guarded(self._end)

        return wrapper

    def _begin(self, runner: Any, scheduled: Any) -> None:
        self._step = None
        tokens = int(scheduled.total_num_scheduled_tokens)
        if tokens == 0:
            return
        if self._timer is None:
            self._timer = self._opened(runner)
        if not self._wrapped_instance:
            self._wrapped_instance = True
            self._wrap_instance(runner)
        step = StepRecord(
            start_ns=time.monotonic_ns(),
            end_ns=0,
            num_reqs=len(scheduled.num_scheduled_tokens),
            num_tokens=tokens,
            new_reqs=len(scheduled.scheduled_new_reqs),
            verified=len(scheduled.scheduled_spec_decode_tokens),
            depth=_depth(runner),
        )
        self._timer.begin(step)
        self._step = step

    def _end(self) -> None:
        step, self._step = self._step, None
        if step is not None and self._timer is not None:
            step.end_ns = time.monotonic_ns()
            self._timer.end(step)

    def _opened(self, runner: Any) -> HostTimer | CudaTimer:
        """The timer that fits the runner's device, over a file of this process."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ring = Ring(self._folder / f"{os.getpid()}.steps")
        device = str(getattr(getattr(runner, "device", None), "type", "cpu"))
        timer: HostTimer | CudaTimer
        if device == "cuda":
            import torch

            timer = CudaTimer(ring.write, torch)
        else:
            timer = HostTimer(ring.write)
        atexit.register(timer.drain)
        _tell(self._folder, "ready", "", runner=self._module, device=device)
        return timer

    def _wrap_instance(self, runner: Any) -> None:
        """Runner V2 calls its model, its CUDA graphs and its speculator as members."""
        if self._module != V2:
            return
        speculator = getattr(runner, "speculator", None)
        if speculator is not None:
            speculator.propose = self.timed(speculator.propose, "draft_s")
        graphs = getattr(runner, "cudagraph_manager", None)
        if graphs is not None and hasattr(graphs, "run_fullgraph"):
            graphs.run_fullgraph = self.timed(graphs.run_fullgraph, "forward_s")
        runner.model.forward = self.timed(runner.model.forward, "forward_s")

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """The probe's own work: what fails turns it off and nothing else."""
        try:
            return call(*args)
        except Exception as error:
            self._off, self._step = True, None
            _tell(self._folder, "unavailable", f"{type(error).__name__}: {error}")
            return None


def _depth(runner: Any) -> int:
    config = getattr(runner, "speculative_config", None)
    return int(getattr(config, "num_speculative_tokens", 0) or 0) if config is not None else 0


def _version() -> str:
    try:
        import vllm

        return str(vllm.__version__)
    except Exception:
        return "unknown"


def _tell(folder: Path, state: str, why: str, **facts: str) -> None:
    """status-<pid>.json: whether steps are recorded, and why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"status-{os.getpid()}.json"
        path.write_text(json.dumps({"state": state, "why": why, "vllm": _version(), **facts}))
    except OSError:
        return
