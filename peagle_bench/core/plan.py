"""The plan: which servers start, in which order, and which cells each of them serves."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from peagle_bench.core.method import METHODS
from peagle_bench.core.profile import FlagValue

HARNESS_SCHEMA = 2
"""Counts up whenever the harness changes what a cell's numbers mean."""


class RunConfig(BaseModel):
    """Every option of `run`, resolved: what the manifest holds and --config may say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str
    suites: tuple[str, ...] = Field(min_length=1)
    """Names of shipped suites, paths of one's own, or `hub:` data sets."""
    methods: tuple[str, ...] = Field(min_length=1)
    depths: tuple[int, ...]
    """K, in tokens per step; every speculating method runs at each of them."""
    concurrency: tuple[int, ...] = Field(min_length=1)
    limit: int | None = Field(default=None, ge=1)
    """Prompts per suite, a seeded sample; None: all."""
    categories: tuple[str, ...] = ()
    """Only prompts of these categories; (): all."""
    tier: str | None = None
    """Only prompts of this tier, for suites that have tiers."""
    oversample: bool = False
    """Repeat prompts where `limit` is more than there are."""
    allow_partial: bool = False
    """Measure what could be filled of a suite that is not complete here."""
    skip_long: bool = False
    """Leave out prompts that do not fit into the served model length."""
    probe: bool = True
    """Time drafting, forward and sampling inside the server, where it lets us."""
    replay_turns: bool = True
    """A conversation is spoken once and replayed to every other cell."""
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0.0, le=100.0)
    seed: int = Field(default=0, ge=0, lt=2**32)
    repeats: int = Field(default=1, ge=1)
    """Each repeat starts every server afresh; methods take turns within a repeat."""
    warmup: int = Field(default=2, ge=0)
    """Requests per cell, at the cell's concurrency, that do not count."""
    score: bool = False
    """Run the programs in replies, in a sandbox: pass@1 of the outputs that were timed."""
    unsafe_scoring: bool = False
    """Score even where no sandbox isolates."""
    keep_text: bool = False
    request_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    idle_timeout_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    ready_timeout_s: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    vllm_python: str | None = None
    """Interpreter that has vLLM; None: the one running peagle-bench."""
    server_command: str | None = None
    """Replaces `python -m vllm.entrypoints.openai.api_server`, e.g. a container command."""
    target_path: str | None = None
    server_flags: dict[str, FlagValue] = {}
    """Laid over the profile's flags, for every method."""


class ServerGroup(BaseModel):
    """One server start: a method at one K in one repeat."""

    model_config = ConfigDict(frozen=True)

    method: str
    depth: int | None
    """K; None for a method that does not speculate."""
    repeat: int
    """Counts from 1."""

    @property
    def label(self) -> str:
        """For people: `P-EAGLE K=7`."""
        title = METHODS[self.method].title
        return title if self.depth is None else f"{title} K={self.depth}"

    @property
    def slug(self) -> str:
        """For folders: `peagle-k7-r1`."""
        depth = "" if self.depth is None else f"-k{self.depth}"
        return f"{self.method}{depth}-r{self.repeat}"


class Cell(BaseModel):
    """One measurement: a server group, a suite and a concurrency."""

    model_config = ConfigDict(frozen=True)

    cell_id: str
    """64 hex digits over everything that can change this cell's numbers."""
    group: ServerGroup
    suite: str
    concurrency: int
    num_prompts: int
    num_requests: int
    """Every turn of every prompt."""
    max_tokens: int

    @property
    def slug(self) -> str:
        """The cell's folder: readable, and unique by its id's first eight digits."""
        return f"{self.group.slug}-{self.suite}-c{self.concurrency}-{self.cell_id[:8]}"

    @property
    def label(self) -> str:
        repeat = f" · repeat {self.group.repeat}" if self.group.repeat > 1 else ""
        return f"{self.group.label} · {self.suite} · C={self.concurrency}{repeat}"


class Plan(BaseModel):
    """The ordered cells of a run."""

    model_config = ConfigDict(frozen=True)

    config: RunConfig
    groups: tuple[ServerGroup, ...]
    cells: tuple[Cell, ...]

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites' names, in order."""
        return tuple(dict.fromkeys(c.suite for c in self.cells))

    def cells_of(self, group: ServerGroup) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.group == group)

    @property
    def digest(self) -> str:
        """Equal for plans with the same cells in the same order."""
        return digest_of([c.cell_id for c in self.cells])


def digest_of(value: Any) -> str:
    """sha256 of a JSON value, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def server_groups(config: RunConfig) -> tuple[ServerGroup, ...]:
    """Server starts in order: all methods and depths once, then again for the next repeat.

    The baseline comes first where it is among them: conversations are spoken by it.
    """
    groups = []
    for repeat in range(1, config.repeats + 1):
        for name in sorted(config.methods, key=lambda m: m != "baseline"):
            depths = config.depths if METHODS[name].speculates else (None,)
            groups += [ServerGroup(method=name, depth=k, repeat=repeat) for k in depths]
    return tuple(groups)
