"""What the server made of a prompt, against the tokenizer's own rendering of it.

A chat template belongs to the server and is applied once. Applied twice, or with a second BOS
before it, the model answers something else than was asked, and acceptance moves with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from peagle_bench.core.record import RequestRecord, digest_of_ids
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import TargetUnavailable
from peagle_bench.targets.tokenizer import TargetTokenizer


@dataclass(frozen=True, slots=True)
class Rendering:
    """The outcome of one comparison."""

    told: str
    """`equal`, or what is different, or why nothing was compared."""
    error: str | None = None
    """Why this prompt must not be measured."""
    differs: bool = False


def compare(prompt: Prompt, record: RequestRecord, tokenizer: TargetTokenizer) -> Rendering:
    """record: of this prompt's first turn, as the server answered it."""
    try:
        mark = tokenizer.starts_as_rendered(prompt)
        if mark is not None:
            return _twice(
                f"{prompt.prompt_id} begins with the control token {mark}: its chat template is "
                "already applied, and the server would apply it again. Send such prompts to the "
                "completions endpoint (a suite YAML with `endpoint: completions`)"
            )
        if record.prompt_token_digest is None:
            return Rendering("not compared: the server does not tell the prompt's token ids")
        expected = tokenizer.ids(prompt)
        bos = tokenizer.bos_id
    except TargetUnavailable as error:
        return Rendering(f"not compared: {error}")
    doubled = bos is not None and expected[:2] == [bos, bos]
    if digest_of_ids(expected) == record.prompt_token_digest:
        if doubled:
            return _twice(
                f"{prompt.prompt_id} reaches the model with two BOS tokens ({bos}, {bos}): its "
                "text begins with one already"
            )
        return Rendering("equal")
    if bos is not None and digest_of_ids([bos, *expected]) == record.prompt_token_digest:
        return _twice(
            f"the server puts a second BOS token ({bos}) before {prompt.prompt_id}: its chat "
            "template and its tokenizer both add one"
        )
    return Rendering(
        f"the server saw {record.prompt_tokens} prompt tokens in {prompt.prompt_id}, the "
        f"tokenizer's own rendering has {len(expected)}",
        differs=True,
    )


def _twice(why: str) -> Rendering:
    return Rendering(why, error=why)
