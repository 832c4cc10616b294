"""The probe around a runner made small: what it records, and that it never gets in the way."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from peagle_bench.probe import plugin
from peagle_bench.probe.reading import steps_between
from peagle_bench.probe.ring import CAPACITY, Ring, StepRecord, read_ring

DAY_NS = 86_400 * 10**9


def scheduled(tokens: dict[str, int], new: int = 0, drafted: int = 0) -> Any:
    return SimpleNamespace(
        total_num_scheduled_tokens=sum(tokens.values()),
        num_scheduled_tokens=tokens,
        scheduled_new_reqs=[object()] * new,
        scheduled_spec_decode_tokens={str(i): [1, 2, 3] for i in range(drafted)},
    )


class Runner:
    """vLLM's V1 runner by its names: execute_model returns None, sample_tokens ends the step."""

    device = SimpleNamespace(type="cpu")
    speculative_config = SimpleNamespace(num_speculative_tokens=3)

    def execute_model(self, scheduler_output: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens:
            self._model_forward()
        return None

    def sample_tokens(self, grammar: Any = None) -> str:
        self._sample()
        self.propose_draft_token_ids()
        return "sampled"

    def _model_forward(self) -> None:
        time.sleep(0.02)

    def _sample(self) -> None:
        time.sleep(0.005)

    def propose_draft_token_ids(self) -> None:
        time.sleep(0.01)


def module(name: str, runner: type | None) -> ModuleType:
    made = ModuleType(name)
    if runner is not None:
        made.GPUModelRunner = runner  # type: ignore[attr-defined]
    return made


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Path]:
    """A runner whose module was there when vLLM loaded the plugin."""
    runner = type("GPUModelRunner", (Runner,), dict(vars(Runner)))
    monkeypatch.setattr(plugin, "_done", set())
    monkeypatch.setitem(sys.modules, plugin.V1, module(plugin.V1, runner))
    monkeypatch.setenv(plugin.VARIABLE, str(tmp_path / "probe"))
    before = list(sys.meta_path)
    plugin.register()
    plugin.register()  # vLLM loads plugins several times in some processes
    monkeypatch.setattr(sys, "meta_path", before)
    return runner(), tmp_path / "probe"


def test_a_step_has_the_times_of_its_stages_and_what_was_scheduled(
    attached: tuple[Any, Path],
) -> None:
    runner, folder = attached
    for _ in range(3):
        runner.execute_model(scheduled({"a": 4, "b": 4}, drafted=2))
        assert runner.sample_tokens(None) == "sampled"
    found = steps_between(folder, 0, 10 * DAY_NS * 365)
    assert found.unavailable is None
    assert len(found.steps) == 3
    step = found.steps[1]
    assert (step.num_reqs, step.num_tokens, step.new_reqs, step.verified, step.depth) == (
        2, 8, 0, 2, 3,
    )  # fmt: skip
    assert step.decodes_only
    assert step.forward_s is not None and step.forward_s >= 0.02
    assert step.sample_s is not None and step.sample_s >= 0.005
    assert step.draft_s is not None and step.draft_s >= 0.01
    assert found.steps[0].interval_s is None
    assert step.interval_s is not None
    assert step.interval_s >= 0.035


def test_prompts_are_told_from_decoding(attached: tuple[Any, Path]) -> None:
    runner, folder = attached
    runner.execute_model(scheduled({"a": 120}, new=1))
    runner.sample_tokens(None)
    runner.execute_model(scheduled({"a": 9}))  # the rest of a chunked prompt
    runner.sample_tokens(None)
    runner.execute_model(scheduled({"a": 4}, drafted=1))
    runner.sample_tokens(None)
    steps = steps_between(folder, 0, 10 * DAY_NS * 365).steps
    assert [s.decodes_only for s in steps] == [False, False, True]


def test_idle_rounds_and_dummy_runs_are_no_steps(attached: tuple[Any, Path]) -> None:
    runner, folder = attached
    runner.execute_model(scheduled({}))
    runner._model_forward()  # profiling at start-up calls it outside a step
    assert "recorded no step" in str(steps_between(folder, 0, DAY_NS).unavailable) or (
        not folder.exists() or not list(folder.glob("*.steps"))
    )


def test_only_steps_that_began_in_the_cell_are_its_own(attached: tuple[Any, Path]) -> None:
    runner, folder = attached
    marks = []
    for _ in range(3):
        marks.append(time.monotonic_ns())
        runner.execute_model(scheduled({"a": 4}))
        runner.sample_tokens(None)
    found = steps_between(folder, marks[1], marks[2])
    assert len(found.steps) == 1
    assert 0 <= found.steps[0].start_ns < 10**9
    assert steps_between(folder, 0, 1).unavailable == "the probe recorded no step during the cell"


def test_a_runner_with_other_inner_names_is_served_as_if_nothing_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renamed:
        def execute_model(self, scheduler_output: Any) -> str:
            return "fine"

    original = Renamed.execute_model
    monkeypatch.setattr(plugin, "_done", set())
    plugin._attach(module(plugin.V1, Renamed), tmp_path)
    assert Renamed.execute_model is original
    why = steps_between(tmp_path, 0, DAY_NS).unavailable
    assert why is not None
    assert "has no _model_forward, _sample" in why
    plugin._done.clear()
    plugin._attach(module(plugin.V1, None), tmp_path)
    assert "has no" in str(steps_between(tmp_path, 0, DAY_NS).unavailable)


def test_a_probe_that_fails_turns_itself_off_and_the_server_goes_on(
    attached: tuple[Any, Path],
) -> None:
    runner, folder = attached
    broken = scheduled({"a": 4})
    del broken.scheduled_new_reqs
    assert runner.execute_model(broken) is None
    assert runner.sample_tokens(None) == "sampled"
    assert runner.execute_model(scheduled({"a": 4})) is None
    assert runner.sample_tokens(None) == "sampled"
    assert "scheduled_new_reqs" in str(steps_between(folder, 0, DAY_NS).unavailable)


def test_a_servers_own_error_passes_through_unchanged(attached: tuple[Any, Path]) -> None:
    runner, _ = attached

    def boom(*_: Any) -> None:
        raise RuntimeError("CUDA out of memory")

    type(runner)._sample = plugin.Probe.timed(
        plugin.Probe(Path("/nowhere"), plugin.V1), boom, "sample_s"
    )
    runner.execute_model(scheduled({"a": 4}))
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        runner.sample_tokens(None)


def test_without_its_variable_the_plugin_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    before = list(sys.meta_path)
    plugin.register()
    assert sys.meta_path == before


def test_a_module_imported_later_is_attached_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a worker: the plugin is loaded before the runner's module."""
    package = tmp_path / "lib"
    (package / "vllm/v1/worker").mkdir(parents=True)
    for part in ("vllm", "vllm/v1", "vllm/v1/worker"):
        (package / part / "__init__.py").write_text("__version__ = '9.9'\n")
    (package / "vllm/v1/worker/gpu_model_runner.py").write_text(
        "class GPUModelRunner:\n"
        "    def execute_model(self, s): return 'result'\n"
        "    def _model_forward(self): pass\n"
        "    def _sample(self): pass\n"
    )
    code = (
        "from peagle_bench.probe import plugin; plugin.register()\n"
        "from types import SimpleNamespace as N\n"
        "from vllm.v1.worker.gpu_model_runner import GPUModelRunner as R\n"
        "s = N(total_num_scheduled_tokens=1, num_scheduled_tokens={'a': 1},\n"
        "      scheduled_new_reqs=[], scheduled_spec_decode_tokens={})\n"
        "print(R().execute_model(s))\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    import os
    import subprocess

    root = Path(plugin.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{package}:{root}", plugin.VARIABLE: str(tmp_path / "p")}
    done = subprocess.run(
        [sys.executable, "-u", "-c", code], env=env, capture_output=True, text=True
    )
    assert done.stdout == "result\n", done.stderr
    assert done.returncode == -9  # not even SIGKILL loses the step
    assert len(steps_between(tmp_path / "p", 0, 10 * DAY_NS * 365).steps) == 1
    (status,) = (tmp_path / "p").glob("status-*.json")
    assert json.loads(status.read_text())["vllm"] == "9.9"


def test_the_ring_grows_and_a_foreign_file_is_refused(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "a.steps")
    for i in range(CAPACITY + 10):
        ring.write(StepRecord(i, i, 1, 1, 0, 0, 0, draft_s=0.5))
    held = read_ring(tmp_path / "a.steps")
    assert len(held) == CAPACITY + 10
    assert (held[-1].start_ns, held[-1].draft_s) == (CAPACITY + 9, 0.5)
    (tmp_path / "b.steps").write_bytes(b"x" * 200)
    with pytest.raises(ValueError, match="no step file"):
        read_ring(tmp_path / "b.steps")
