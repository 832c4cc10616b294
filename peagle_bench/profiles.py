"""The profiles that ship, and which of them this machine can serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peagle_bench.core.names import resolve
from peagle_bench.core.profile import Profile
from peagle_bench.resources import data_root
from peagle_bench.yamlfile import read_model

EMBEDDED = "smollm2-135m"


def profile_names() -> list[str]:
    return sorted(p.stem for p in (data_root() / "profiles").glob("*.yaml"))


def profile_named(name: str) -> Profile:
    """A shipped profile, or a YAML file of one's own. Raises UnknownName or ConfigError."""
    if name.endswith((".yaml", ".yml")):
        return read_profile(Path(name))
    found = resolve("profile", name, profile_names(), {})
    return read_profile(data_root() / "profiles" / f"{found}.yaml")


def read_profile(path: Path) -> Profile:
    """Raises ConfigError naming the field that is wrong."""
    return read_model(path, Profile, "profile")


def choose(gpus: Sequence[dict[str, Any]]) -> tuple[Profile, str]:
    """The largest profile whose target fits the GPUs, and why; the embedded one without any."""
    if not gpus:
        return profile_named(EMBEDDED), "no GPU was found: the embedded default on the CPU"
    memory = sum(g["memory_gib"] for g in gpus)
    names = ", ".join(sorted({g["name"] for g in gpus}))
    have = f"{len(gpus)} x {names}, {memory:.0f} GiB"
    fitting = [
        p
        for p in map(profile_named, profile_names())
        if p.gpu_memory_gib is not None and p.gpu_memory_gib <= memory
    ]
    if not fitting:
        return profile_named(EMBEDDED), f"{have}: no larger target fits, the embedded default"
    best = max(fitting, key=lambda p: p.target.parameters or 0.0)
    return best, f"{have}: the largest target that fits (needs {best.gpu_memory_gib:.0f} GiB)"
