"""What a loader is told and what it gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peagle_bench.core.result import Finding
from peagle_bench.core.suite import Prompt

EXAMPLES = 3
"""Places named for each reason that rows were skipped."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What `run` and `suites` tell a loader."""

    allow_partial: bool = False
    """Take what is there of a suite that is not complete."""
    vocabulary: Callable[[], Sequence[int]] | None = None
    """Token ids of the target that are no control tokens. Raises TargetUnavailable."""
    say: Callable[[str], None] = lambda _: None
    """Called with a line before something that takes a while."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A suite's prompts in their own order, and what must be said of them."""

    prompts: Sequence[Prompt]
    stamps: tuple[Finding, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Where the rows came from: revision, files' digests, counts."""


@dataclass(slots=True)
class Skipped:
    """Rows that are no request, counted by reason."""

    reasons: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    """The first few of each reason."""

    def add(self, reason: str, place: str) -> None:
        self.reasons[reason] += 1
        held = self.places.setdefault(reason, [])
        if len(held) < EXAMPLES:
            held.append(place)

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    def stamps(self, rows: int) -> tuple[Finding, ...]:
        """What must be said where some of `rows` rows were skipped."""
        if not self.total:
            return ()
        text = f"{self.total} of {rows} rows are no request and were skipped: {self}"
        return (Finding(code="rows-skipped", text=text),)

    def __str__(self) -> str:
        """`9 content that is not text (a.jsonl:3, …), 1 no JSON (a.jsonl:7)`."""
        parts = []
        for reason, count in self.reasons.most_common():
            places = ", ".join(self.places[reason])
            more = ", …" if count > len(self.places[reason]) else ""
            parts.append(f"{count} {reason} ({places}{more})")
        return ", ".join(parts)


class Unusable(Exception):
    """A row that is no request that can be sent; the text says why, without its content."""


def unique_ids(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The same prompts, a repeated id followed by `#2`, `#3`, …"""
    seen: Counter[str] = Counter()
    taken = {p.prompt_id for p in prompts}
    out = []
    for prompt in prompts:
        seen[prompt.prompt_id] += 1
        if seen[prompt.prompt_id] > 1:
            name = f"{prompt.prompt_id}#{seen[prompt.prompt_id]}"
            while name in taken:
                seen[prompt.prompt_id] += 1
                name = f"{prompt.prompt_id}#{seen[prompt.prompt_id]}"
            taken.add(name)
            prompt = prompt.model_copy(update={"prompt_id": name})
        out.append(prompt)
    return out
