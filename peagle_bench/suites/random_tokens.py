"""Token ids drawn uniformly: load of an exact length, and text that no model was trained on."""

from __future__ import annotations

import random

from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.errors import ConfigError
from peagle_bench.suites.hub import DRAWN_BY
from peagle_bench.suites.loaded import Loaded, LoadOptions


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """`prompts` prompts of `input_tokens` ids each; the same ones for the same vocabulary.

    Raises ConfigError without a vocabulary, TargetUnavailable when it cannot be read.
    """
    assert suite.random is not None
    if options.vocabulary is None:
        raise ConfigError(f"{suite.name} needs a target's vocabulary: name a --profile")
    ids = options.vocabulary()
    draw = random.Random(DRAWN_BY)
    prompts = [
        Prompt(
            prompt_id=f"{suite.name}/{number}",
            completion=tuple(draw.choices(ids, k=suite.random.input_tokens)),
        )
        for number in range(suite.random.prompts)
    ]
    return Loaded(prompts, facts={"vocabulary": len(ids)})
