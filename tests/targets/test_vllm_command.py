from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from peagle_bench.core.plan import RunConfig, ServerGroup
from peagle_bench.core.profile import HeadSpec
from peagle_bench.errors import VllmNotFound
from peagle_bench.profiles import profile_named
from peagle_bench.targets import vllm

INSTALL = vllm.VllmInstall("/env/bin/python", "vllm", "0.32.0")


def command(method: str, depth: int | None, version: str = "0.32.0", **config: object) -> list[str]:
    profile = profile_named("smollm2-135m")
    run = RunConfig(
        profile=profile.name,
        suites=("humaneval",),
        methods=(method,),
        depths=(3,),
        concurrency=(1,),
        **config,  # type: ignore[arg-type]
    )
    install = None if run.server_command else vllm.VllmInstall("/env/bin/python", "vllm", version)
    group = ServerGroup(method=method, depth=depth, repeat=1)
    spec = vllm.server_spec(
        profile, group, run, model="/t", head=HeadSpec(model="/h"), install=install
    )
    return list(spec.command)


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_every_method_gets_the_same_flags_but_for_speculation() -> None:
    def shared(words: list[str]) -> list[str]:
        drop = {"--speculative-config", "--per-request-spec-decode-metrics", "--port"}
        kept, skip = [], False
        for word in words:
            if skip:
                skip = False
            elif word in drop:
                skip = True
            else:
                kept.append(word)
        return kept

    baseline = shared(command("baseline", None))
    assert shared(command("eagle3", 3)) == baseline
    assert shared(command("peagle", 7)) == baseline
    assert baseline[:3] == ["/env/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert "--no-enable-prefix-caching" in baseline
    assert value(baseline, "--stream-interval") == "1"
    assert value(baseline, "--host") == "127.0.0.1"
    assert value(baseline, "--served-model-name") == "smollm2-135m"


def test_parallel_drafting_is_what_tells_peagle_from_eagle3() -> None:
    spec = json.loads(value(command("peagle", 7), "--speculative-config"))
    assert spec == {
        "method": "eagle3",
        "model": "/h",
        "num_speculative_tokens": 7,
        "parallel_drafting": True,
    }
    assert "--speculative-config" not in command("baseline", None)


def test_per_request_metrics_are_asked_for_where_the_version_knows_them() -> None:
    flag = "--per-request-spec-decode-metrics"
    assert flag in command("peagle", 7, "0.29.0")
    assert flag not in command("peagle", 7, "0.28.1")
    assert flag not in command("baseline", None, "0.32.0")  # rejected without speculation


def test_the_runs_own_flags_win_over_the_profiles() -> None:
    words = command("baseline", None, server_flags={"max-model-len": 512, "enforce-eager": False})
    assert value(words, "--max-model-len") == "512"
    assert "--no-enforce-eager" in words


def test_a_container_command_replaces_the_interpreter_and_keeps_the_flags() -> None:
    words = command("baseline", None, server_command="docker run --rm img:1 --x")
    assert words[:5] == ["docker", "run", "--rm", "img:1", "--x"]
    assert "--served-model-name" in words


def test_the_model_runner_is_pinned_for_every_method() -> None:
    env = vllm.group_env(profile_named("gpt-oss-20b"))
    assert env["VLLM_USE_V2_MODEL_RUNNER"] == "0"


@pytest.mark.parametrize(
    ("version", "parsed"),
    [("0.32.0", (0, 32, 0)), ("0.32.0+cpu", (0, 32, 0)), ("0.9.1rc2", (0, 9, 1))],
)
def test_versions_compare_by_their_leading_numbers(version: str, parsed: tuple[int, ...]) -> None:
    assert vllm.version_tuple(version) == parsed


def test_an_unknown_version_is_never_new_enough() -> None:
    assert not vllm.at_least(None, "0.1")


def test_an_interpreter_without_vllm_is_named_with_the_command_that_installs_it(
    tmp_path: Path,
) -> None:
    import subprocess

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "e"], check=True)
    with pytest.raises(VllmNotFound, match="no vLLM is installed.*pip install"):
        vllm.find_vllm(str(tmp_path / "e" / "bin" / "python"))


def test_an_interpreter_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(VllmNotFound, match="cannot run the servers' interpreter /no/python"):
        vllm.find_vllm("/no/python")


def test_the_trained_depth_is_read_from_the_heads_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"peagle_trained_depth": 8}')
    assert vllm.head_depth(tmp_path) == 8
    assert vllm.head_depth(tmp_path / "none") is None


def test_intels_openmp_is_loaded_first_where_the_environment_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert vllm.intel_openmp(str(python)) is None
    library = tmp_path / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    assert vllm.intel_openmp(str(python)) == library
    cpu, gpu = profile_named("smollm2-135m"), profile_named("gpt-oss-20b")
    assert vllm.group_env(cpu, library)["LD_PRELOAD"] == str(library)
    assert "LD_PRELOAD" not in vllm.group_env(gpu, library)
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    assert "LD_PRELOAD" not in vllm.group_env(cpu, library)
