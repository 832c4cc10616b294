"""Suites: prompts, sampling and output length."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """One chat message."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str


class Prompt(BaseModel):
    """One request to be made: what is sent, and what it is called."""

    model_config = ConfigDict(frozen=True)

    prompt_id: str
    messages: tuple[Message, ...]
    category: str = "all"


class Sampling(BaseModel):
    """Sent with every request: a server's own defaults never decide."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = 0


class Suite(BaseModel):
    """A suite's YAML: where its prompts come from and how they are asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    title: str
    loader: str
    """The module of peagle_bench.suites that reads its format."""
    source: str
    license: str
    template: str = "{prompt}"
    """The user message; `{prompt}` is the problem's own text."""
    sampling: Sampling = Sampling()
    max_tokens: int = Field(default=1024, ge=1)
    public: bool = False
    """The prompts are public: outputs' token ids may be kept in the run folder."""
    note: str = ""


def prompts_digest(prompts: tuple[Prompt, ...]) -> str:
    """sha256 over ids and messages in order: equal digests, equal requests."""
    rows = [[p.prompt_id, [[m.role, m.content] for m in p.messages]] for p in prompts]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
