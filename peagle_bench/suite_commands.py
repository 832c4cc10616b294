"""`suites list | show | prepare | check`: what each prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from peagle_bench import provenance
from peagle_bench.core.profile import Profile
from peagle_bench.core.suite import Prompt, Suite, prompts_digest
from peagle_bench.errors import TargetUnavailable
from peagle_bench.profiles import choose, profile_named
from peagle_bench.selection import long_text, served_length, too_long
from peagle_bench.suites import catalog
from peagle_bench.suites.loaded import Loaded, LoadOptions
from peagle_bench.targets.tokenizer import CannotRender, TargetTokenizer


def list_suites(console: Console) -> None:
    """Every shipped suite, one line each."""
    table = Table(title="suites", title_justify="left")
    table.add_column("name", no_wrap=True)
    for name in ("what", "here", "licence"):
        table.add_column(name)
    for name in catalog.suite_names():
        suite = catalog.suite_named(name)
        here = "ready" if catalog.is_here(suite) else "from the hub"
        table.add_row(
            name, escape(suite.title), here, escape(suite.license.split(";")[0].split(",")[0])
        )
    console.print(table)
    console.print(
        "One's own: --suite PATH (OpenAI chat or batch JSONL, prompts, ShareGPT, SageMaker Data "
        "Capture), a suite's YAML, or hub:owner/name,split=…,prompt=COLUMN. See `suites check`.",
        highlight=False,
    )


def show_suite(console: Console, reference: str, profile: str, allow_partial: bool) -> int:
    """A suite's own facts, then its prompts'. Raises SuiteUnavailable after the first part."""
    suite = catalog.find_suite(reference)
    _facts(
        console,
        {
            "suite": f"{suite.name} (version {suite.version}): {suite.title}",
            "source": suite.source,
            "licence": suite.license,
            "sampling": f"temperature {suite.sampling.temperature:g}, top_p "
            f"{suite.sampling.top_p:g}, at most {suite.max_tokens:,} output tokens"
            + (", end of text ignored" if suite.sampling.ignore_eos else ""),
            "template": suite.template if suite.template != "{prompt}" else "",
            "revision": (suite.hub.revision or "the newest") if suite.hub else "",
            "note": suite.note,
            "stamp": suite.stamp,
        },
    )
    tokenizer = TargetTokenizer(_profile(profile))
    loaded = catalog.load(suite, LoadOptions(allow_partial, tokenizer.vocabulary, console.print))
    _describe(console, loaded, tokenizer)
    return 0


def prepare_suite(console: Console, reference: str, path: Path | None) -> None:
    """Fetch or take over, and say what became of it."""
    suite = catalog.find_suite(reference)

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    say(catalog.prepare(suite, path, LoadOptions(say=say)))


def check_file(console: Console, reference: str, profile: str, max_tokens: int | None) -> int:
    """What a file would send; 1 when some of it does not fit the profile's served length."""
    suite, found = catalog.find_suite(reference), _profile(profile)
    tokenizer = TargetTokenizer(found)
    loaded = catalog.load(suite, LoadOptions(True, tokenizer.vocabulary, console.print))
    _facts(console, {"suite": f"{suite.name}: {suite.source}"})
    refused = _describe(console, loaded, tokenizer)
    fit = _check_lengths(console, suite, loaded.prompts, found, max_tokens, tokenizer)
    return 1 if refused else fit


def _check_lengths(
    console: Console,
    suite: Suite,
    prompts: Sequence[Prompt],
    profile: Profile,
    max_tokens: int | None,
    tokenizer: TargetTokenizer,
) -> int:
    served = served_length(profile.flags)
    if served is None:
        return 0
    cap = max_tokens or profile.defaults.max_tokens or suite.max_tokens
    try:
        long = too_long(prompts, cap, served, tokenizer)
    except TargetUnavailable as error:
        _facts(console, {"fit": f"not checked: {error}"})
        return 0
    if long:
        _facts(console, {"fit": long_text(suite.name, len(prompts), long, served)})
        return 1
    _facts(
        console,
        {"fit": f"all fit into the {served:,} tokens that {profile.name} serves, with {cap:,} "
         "output tokens a turn"},
    )  # fmt: skip
    return 0


def _profile(name: str) -> Profile:
    return choose(provenance.gpus())[0] if name == "auto" else profile_named(name)


def _describe(console: Console, loaded: Loaded, tokenizer: TargetTokenizer) -> int:
    """Size, digest, kinds, categories, lengths, and what must be said.

    Returns how many prompts the target's chat template refuses.
    """
    prompts = loaded.prompts
    turns = sum(p.num_turns for p in prompts)
    several = sum(p.num_turns > 1 for p in prompts)
    kinds = Counter(
        "chat" if p.messages else "token ids" if isinstance(p.completion, tuple) else "raw text"
        for p in prompts
    )
    size = f"{len(prompts):,} prompts"
    if several:
        size += f", {several:,} of them conversations: {turns:,} requests"
    size += f" ({', '.join(f'{n:,} {kind}' for kind, n in kinds.items())})"
    categories = Counter(p.category for p in prompts)
    lengths, refused = _lengths(prompts, tokenizer)
    _facts(
        console,
        {
            "size": size,
            "digest": prompts_digest(prompts),
            "from": str(loaded.facts.get("source", "")),
            "categories": ", ".join(f"{c} {n:,}" for c, n in sorted(categories.items()))
            if len(categories) > 1
            else "",
            "tokens": lengths,
            "refused": f"{len(refused)} of {len(prompts)} prompts: {refused[0]}" if refused else "",
            **{s.code: s.text for s in loaded.stamps if s.code != "stamp"},
        },
    )
    return len(refused)


def _lengths(prompts: Sequence[Prompt], tokenizer: TargetTokenizer) -> tuple[str, list[str]]:
    """Lengths of what is sent up to the last turn, replies left out; and what was refused."""
    lengths: list[int] = []
    refused: list[str] = []
    try:
        for prompt in prompts:
            try:
                lengths.append(tokenizer.length(prompt))
            except CannotRender as error:
                refused.append(str(error))
    except TargetUnavailable as error:
        most = sorted(p.most_tokens() for p in prompts)
        return f"not counted ({error}); bytes: {_spread(most)}", []
    told = f"as {tokenizer.name} renders them, replies left out"
    return f"{_spread(sorted(lengths))} ({told})" if lengths else "", refused


def _spread(values: Sequence[int]) -> str:
    p90 = values[min(len(values) - 1, int(0.9 * len(values)))]
    return (
        f"{values[0]:,} to {values[-1]:,}, median {median(values):,.0f}, 90 % up to {p90:,}, "
        f"{sum(values):,} in all"
    )


def _facts(console: Console, facts: dict[str, str]) -> None:
    """`name      value`, long values wrapped under themselves; empty ones left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold", min_width=12)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            table.add_row(name, escape(value))
    console.print(table)
