"""The target's own tokenizer and chat template: what a prompt should become on the server."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from peagle_bench.core.profile import Profile
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import TargetUnavailable
from peagle_bench.targets import calibration, embedded


class CannotRender(TargetUnavailable):
    """The tokenizer is there, and its chat template refuses one prompt."""


class TargetTokenizer:
    """Reads nothing until it is asked; the first answer takes some seconds."""

    def __init__(self, profile: Profile, target_path: str | None = None) -> None:
        self._profile, self._path = profile, target_path

    @cached_property
    def _held(self) -> Any:
        target = self._profile.target
        if target.kind == "calibration":
            raise TargetUnavailable("the calibration server has no tokenizer")
        where: str = self._path or target.model
        if target.kind == "embedded":
            folder = Path(self._path or embedded.cached_folder())
            if not (folder / "tokenizer.json").is_file():
                raise TargetUnavailable(f"no tokenizer in {folder}: peagle-bench prepare")
            where = str(folder)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise TargetUnavailable(f"transformers is not installed ({error})") from error
        logging.getLogger("transformers").setLevel(logging.ERROR)
        try:
            return AutoTokenizer.from_pretrained(
                where, revision=None if Path(where).is_dir() else target.revision
            )
        except Exception as error:  # hub out of reach, gated, no tokenizer files, …
            why = " ".join(str(error).split())[:160]
            raise TargetUnavailable(f"no tokenizer from {where}: {why}") from error

    @property
    def name(self) -> str:
        return self._profile.name

    @property
    def bos_id(self) -> int | None:
        held: int | None = self._held.bos_token_id
        return held

    def ids(self, prompt: Prompt, replies: Sequence[str] = ()) -> list[int]:
        """Token ids of the request after `replies`, as the server should see them.

        Raises TargetUnavailable without a tokenizer, CannotRender where its template refuses.
        """
        if isinstance(prompt.completion, tuple):
            return list(prompt.completion)
        if prompt.completion is not None:
            return list(self._held(prompt.completion)["input_ids"])
        try:
            return list(
                self._held.apply_chat_template(
                    prompt.conversation(replies),
                    tools=list(prompt.tools) or None,
                    **_template_words(prompt),
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=True,
                )["input_ids"]
            )
        except TargetUnavailable:
            raise
        except Exception as error:  # templates raise what they like
            why = " ".join(str(error).split())[:160]
            what = f"its chat template cannot render {prompt.prompt_id}: {why}"
            raise CannotRender(what) from error

    def length(self, prompt: Prompt) -> int:
        """Tokens of all that is sent by the last turn, without the model's replies."""
        return len(self.ids(prompt, ("",) * len(prompt.follow_ups)))

    def starts_as_rendered(self, prompt: Prompt) -> str | None:
        """The control token that a message's text begins with: it was rendered already."""
        marks = [t for t in self._held.all_special_tokens if t]
        for message in prompt.messages:
            text = (message.content or "").lstrip()
            for mark in marks:
                if text.startswith(mark):
                    return str(mark)
        return None

    def vocabulary(self) -> Sequence[int]:
        """Ids that are no control tokens. Raises TargetUnavailable."""
        if self._profile.target.kind == "calibration":
            return calibration.VOCABULARY
        added = set(self._held.added_tokens_decoder)
        return [i for i in range(len(self._held)) if i not in added]


def _template_words(prompt: Prompt) -> dict[str, Any]:
    """What the request tells the template, as vLLM hands it on."""
    words = dict(prompt.template_options)
    words |= words.pop("chat_template_kwargs", None) or {}
    return words
