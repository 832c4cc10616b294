"""Suites: prompts, sampling and output length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

NO_CATEGORY = "all"
"""The category of prompts that have none."""
Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(BaseModel):
    """One chat message, in the OpenAI API's words."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: str | None
    """None only beside tool calls."""
    name: str | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None

    def wire(self) -> dict[str, Any]:
        """As it is sent: fields that are not set are not there."""
        fields = {k: v for k, v in self.model_dump(mode="json").items() if v is not None}
        return {"role": self.role, "content": self.content} | fields


class Prompt(BaseModel):
    """One request to be made, or one conversation of several: what is sent, and its name.

    Exactly one of `messages` and `completion` is set.
    """

    model_config = ConfigDict(frozen=True)

    prompt_id: str
    """Unique in its suite; the only thing of a prompt that a run folder names."""
    messages: tuple[Message, ...] = ()
    """Chat: all that stands before the model's first reply. The server applies its template."""
    follow_ups: tuple[str, ...] = ()
    """Later user turns, each sent after the reply to the one before."""
    completion: str | tuple[int, ...] | None = None
    """Completions endpoint: raw text or token ids, sent as they are."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tool definitions that the template renders; replies stay text."""
    template_options: dict[str, Any] = {}
    """Fields of the request that change how its prompt is rendered, sent as they were."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The request's own output cap, where the traffic named one."""
    left_out: tuple[str, ...] = ()
    """Fields of the request that are not sent."""
    category: str = NO_CATEGORY

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.messages) == (self.completion is not None):
            raise ValueError("a prompt has either messages or a completion prompt")
        if self.follow_ups and not self.messages:
            raise ValueError("follow-up turns need chat messages")
        return self

    @property
    def num_turns(self) -> int:
        return 1 + len(self.follow_ups)

    @property
    def first_turn(self) -> Prompt:
        """The same without its later turns: what warms a server up."""
        return self.model_copy(update={"follow_ups": ()})

    def conversation(self, replies: Sequence[str]) -> list[dict[str, Any]]:
        """Messages of the turn after `replies`, in wire form."""
        sent = [m.wire() for m in self.messages]
        for reply, turn in zip(replies, self.follow_ups, strict=False):
            sent.append({"role": "assistant", "content": reply})
            sent.append({"role": "user", "content": turn})
        return sent

    def texts(self) -> list[str]:
        """Every text that is sent in any turn; tool definitions and calls as JSON."""
        if self.completion is not None:
            return [self.completion] if isinstance(self.completion, str) else []
        out = [m.content or "" for m in self.messages]
        calls = [c for m in self.messages for c in m.tool_calls or ()]
        out += [json.dumps(held, ensure_ascii=False) for held in (*calls, *self.tools)]
        return [*out, *self.follow_ups]

    def most_tokens(self) -> int:
        """UTF-8 bytes of all that is sent in any turn: no tokenizer makes more tokens of it."""
        if isinstance(self.completion, tuple):
            return len(self.completion)
        return sum(len(t.encode()) for t in self.texts())


class Sampling(BaseModel):
    """Sent with every request: a server's own defaults never decide."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = 0
    ignore_eos: bool = False
    """Go on to the output cap whatever the model says: for load alone."""


class HubSource(BaseModel):
    """A data set on the Hugging Face hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
    """`owner/name`"""
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    """Commit; None: whatever is newest, and the run records which that was."""
    stream: bool = False
    """Too large to download: the sample is drawn from the first rows of the stream and kept."""


class Columns(BaseModel):
    """Which columns of a row hold what; exactly one of the first four."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str | None = None
    """Text: the user message, through the suite's template."""
    turns: str | None = None
    """A list of texts: the user's turns, one after another."""
    messages: str | None = None
    """OpenAI messages."""
    conversations: str | None = None
    """ShareGPT's from/value pairs."""
    id: str | None = None
    category: str | None = None

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        given = [self.prompt, self.turns, self.messages, self.conversations]
        if sum(g is not None for g in given) != 1:
            raise ValueError("name exactly one of prompt, turns, messages, conversations")
        return self


class RandomTokens(BaseModel):
    """Prompts of token ids drawn uniformly from the target's vocabulary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: int = Field(ge=1)
    input_tokens: int = Field(ge=1)


class Suite(BaseModel):
    """A suite's YAML: where its prompts come from and how they are asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Stands in folder names."""
    version: str
    title: str
    loader: str
    """The module of peagle_bench.suites that reads its format."""
    source: str
    license: str
    endpoint: Literal["chat", "completions"] = "chat"
    """Where plain prompts go: as a user message, or as raw text without any template."""
    template: str = "{prompt}"
    """The user message; `{prompt}` is the problem's own text."""
    sampling: Sampling = Sampling()
    max_tokens: int = Field(default=1024, ge=1)
    multi_turn: bool = False
    """Some prompts have several turns."""
    public: bool = False
    """The prompts are public: outputs' token ids may be kept in the run folder."""
    hub: HubSource | None = None
    columns: Columns | None = None
    path: str | None = None
    """A file or folder, absolute or beside the YAML."""
    random: RandomTokens | None = None
    category: str | None = None
    """The one category of the source that this suite is."""
    tiers: tuple[str, ...] = ()
    """Values that --tier may take; a tier is a category."""
    rows: int | None = Field(default=None, ge=1)
    """How many rows the source has at the pinned revision: another count is an error."""
    sample: int | None = Field(default=None, ge=1)
    """Rows drawn from the source, always the same ones; None: all."""
    stand_in: str | None = None
    """A suite to take where this one's source is out of reach."""
    scorer: Literal["humaneval"] | None = None
    """What --score can say of a reply; None: nothing."""
    stamp: str = ""
    """What every table and report on this suite must say."""
    note: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Nothing that is set is without effect."""
        needs = {"jsonl": "path", "random_tokens": "random"}.get(self.loader, "hub")
        if getattr(self, needs) is None:
            raise ValueError(f"loader {self.loader} needs `{needs}:`")
        for other in {"path", "random", "hub"} - {needs}:
            if getattr(self, other) is not None:
                raise ValueError(f"`{other}:` has no meaning for loader {self.loader}")
        if self.loader == "hub" and self.columns is None:
            raise ValueError("loader hub needs `columns:`")
        if needs != "hub" and (self.rows or self.sample):
            raise ValueError("`rows:` and `sample:` are for suites of the hub; --limit draws too")
        if "{prompt}" not in self.template:
            raise ValueError("the template must hold {prompt}")
        return self


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """sha256 over all that is sent, in order, with ids: equal digests, equal requests."""
    rows = [
        [
            p.prompt_id,
            p.conversation(()),
            p.follow_ups,
            p.completion,
            p.tools,
            p.template_options,
            p.max_tokens,
        ]
        for p in prompts
    ]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
