"""Profiles: a target, its heads, and what every method's server shares."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FlagValue = bool | int | float | str
"""A server flag's value: True gives `--flag`, False `--no-flag`, anything else `--flag value`."""


class HeadSpec(BaseModel):
    """A drafter's weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    """Hub id, absolute path, or a path relative to the project's data folder."""
    revision: str | None = None
    trained_depth: int | None = Field(default=None, ge=1)
    """Largest K the head was trained with; None: not published."""
    recommended_depth: int | None = Field(default=None, ge=1)


class TargetSpec(BaseModel):
    """The model being served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["embedded", "hub", "calibration"]
    model: str
    """Hub id or path (`hub`), name of a built-in conversion (`embedded`), free (`calibration`)."""
    revision: str | None = None
    served_name: str
    """The id under which /v1/models must list it."""
    parameters: float | None = None
    """Number of parameters, for choosing the largest profile that fits."""


class Estimates(BaseModel):
    """What --dry-run reckons with; never used in a result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start_s: float = 120.0
    request_tok_per_s: float = 100.0
    """Tokens per second of one request without speculation."""


class Defaults(BaseModel):
    """What `run` does with this profile when an option is not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[str, ...] = ("baseline", "eagle3", "peagle")
    depths: tuple[int, ...] = (3, 5, 7)
    concurrency: tuple[int, ...] = (1, 4, 16)
    limit: int | None = None
    max_tokens: int | None = None
    """None: the suite's own output cap."""
    warmup: int = 2


class Profile(BaseModel):
    """A target with its heads, flags and environment: everything methods have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    target: TargetSpec
    heads: dict[str, HeadSpec] = {}
    """By method name."""
    flags: dict[str, FlagValue] = {}
    """Server flags of every method, by name without dashes."""
    env: dict[str, str] = {}
    """Environment of every server."""
    gpu_memory_gib: float | None = None
    """GPU memory needed in all; None: needs no GPU."""
    estimates: Estimates = Estimates()
    defaults: Defaults = Defaults()
    note: str = ""
