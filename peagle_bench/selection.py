"""Which prompts of a suite a run asks, whether they fit, and what must be said of the choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peagle_bench.core.plan import RunConfig
from peagle_bench.core.profile import FlagValue, Profile
from peagle_bench.core.result import Finding
from peagle_bench.core.suite import Prompt, Suite, prompts_digest
from peagle_bench.errors import ConfigError, TargetUnavailable
from peagle_bench.suites import catalog
from peagle_bench.suites.loaded import LoadOptions
from peagle_bench.targets.tokenizer import TargetTokenizer

TEMPLATE_TOKENS = 512
"""More than any chat template adds to one conversation of few turns, for a bound without a
tokenizer."""
NAMED = 5
"""Prompts named in an error."""
_UNITS = {"k": 10**3, "m": 10**6, "K": 2**10, "M": 2**20}


@dataclass(frozen=True, slots=True)
class Selection:
    """A suite's prompts in a run."""

    suite: Suite
    prompts: tuple[Prompt, ...]
    stamps: tuple[Finding, ...]
    """What every table on these prompts must say."""
    notes: tuple[str, ...]
    """What the user should know before the run."""
    facts: dict[str, Any]
    digest: str
    """sha256 over all that is sent."""

    @property
    def num_requests(self) -> int:
        return sum(p.num_turns for p in self.prompts)

    @property
    def multi_turn(self) -> bool:
        return self.num_requests > len(self.prompts)


def select(
    suite: Suite, config: RunConfig, profile: Profile, tokenizer: TargetTokenizer
) -> Selection:
    """Load, filter, check against the served length, draw.

    Raises SuiteUnavailable, TargetUnavailable or ConfigError.
    """
    options = LoadOptions(config.allow_partial, tokenizer.vocabulary)
    loaded = catalog.load(suite, options)
    prompts: Sequence[Prompt] = catalog.filtered(
        suite, loaded.prompts, config.categories, config.tier
    )
    stamps, notes = list(loaded.stamps), []
    available = len(prompts)
    max_tokens = config.max_tokens or suite.max_tokens
    served = served_length(profile.flags | config.server_flags)
    if config.skip_long:
        prompts, note = _without_long(suite, prompts, max_tokens, served, tokenizer)
        notes += note
        if len(prompts) < available:
            text = (
                f"{available - len(prompts)} of {available} prompts do not fit into {served:,} "
                "tokens and were left out (--skip-long)"
            )
            stamps.append(Finding(code="skipped-long", text=text))
            notes.append(f"{suite.name}: {text}")
    chosen = catalog.drawn(prompts, config.limit, config.seed, config.oversample)
    if not config.skip_long:
        notes += _refuse_long(suite, chosen, max_tokens, served, tokenizer)
    if config.limit is not None and config.limit > len(prompts):
        if config.oversample:
            text = f"OVERSAMPLED: {len(chosen)} prompts from {len(prompts)} (--oversample)"
            stamps.append(Finding(code="oversampled", text=text))
        else:
            notes.append(
                f"{suite.name} has {len(prompts)} prompts: --limit {config.limit} takes them all "
                "(--oversample would repeat them)"
            )
    copies = len(chosen) - len({_content(p) for p in chosen})
    if copies and not config.oversample:
        text = (
            f"{copies} of {len(chosen)} prompts are copies of others: intervals count each as an "
            "observation of its own"
        )
        stamps.append(Finding(code="copies", text=text))
    facts = loaded.facts | {"available": available, "loaded": len(loaded.prompts)}
    return Selection(suite, chosen, tuple(stamps), tuple(notes), facts, prompts_digest(chosen))


def _content(prompt: Prompt) -> str:
    """All of a prompt but its name."""
    return prompt.model_copy(update={"prompt_id": ""}).model_dump_json()


def served_length(flags: dict[str, FlagValue]) -> int | None:
    """`max-model-len` as vLLM reads it (16384, 16k = 16,000, 16K = 16,384); None: not fixed."""
    value = str(flags.get("max-model-len", flags.get("max_model_len", "")))
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", value)
    return int(float(found[1]) * _UNITS.get(found[2], 1)) if found else None


def too_long(
    prompts: Sequence[Prompt], max_tokens: int, served: int, tokenizer: TargetTokenizer
) -> dict[str, tuple[int, int]]:
    """(prompt tokens, output tokens) by id of the prompts that do not fit, replies included.

    A prompt of which every byte could be a token and still fits needs no tokenizer. Raises
    TargetUnavailable where one is needed and there is none.
    """
    out: dict[str, tuple[int, int]] = {}
    for prompt in prompts:
        output = prompt.num_turns * min(max_tokens, prompt.max_tokens or max_tokens)
        if prompt.most_tokens() + TEMPLATE_TOKENS * prompt.num_turns + output <= served:
            continue
        length = tokenizer.length(prompt)
        if length + output > served:
            out[prompt.prompt_id] = (length, output)
    return out


def _refuse_long(
    suite: Suite,
    prompts: Sequence[Prompt],
    max_tokens: int,
    served: int | None,
    tokenizer: TargetTokenizer,
) -> list[str]:
    """Notes; raises ConfigError naming prompts that do not fit."""
    if served is None:
        return []
    try:
        long = too_long(prompts, max_tokens, served, tokenizer)
    except TargetUnavailable as error:
        return [_unchecked(suite, error)]
    if long:
        raise ConfigError(long_text(suite.name, len(prompts), long, served))
    return []


def long_text(name: str, count: int, long: dict[str, tuple[int, int]], served: int) -> str:
    """Which prompts do not fit, and what to do."""
    named = ", ".join(f"{i} ({a:,} + {b:,})" for i, (a, b) in list(long.items())[:NAMED])
    more = f" and {len(long) - NAMED} more" if len(long) > NAMED else ""
    return (
        f"{len(long)} of {count} prompts of {name} do not fit into the served {served:,} tokens "
        f"(prompt + output): {named}{more}. Lower --max-tokens, serve longer ones with "
        "--server-flag max-model-len=N, or leave these out with --skip-long"
    )


def _without_long(
    suite: Suite,
    prompts: Sequence[Prompt],
    max_tokens: int,
    served: int | None,
    tokenizer: TargetTokenizer,
) -> tuple[Sequence[Prompt], list[str]]:
    if served is None:
        return prompts, []
    try:
        long = too_long(prompts, max_tokens, served, tokenizer)
    except TargetUnavailable as error:
        return prompts, [_unchecked(suite, error)]
    kept = [p for p in prompts if p.prompt_id not in long]
    if not kept:
        raise ConfigError(long_text(suite.name, len(prompts), long, served))
    return kept, []


def _unchecked(suite: Suite, error: TargetUnavailable) -> str:
    return (
        f"the lengths of {suite.name}'s prompts were not checked ({error}); the server refuses "
        "what does not fit, and the cell is INVALID then"
    )
