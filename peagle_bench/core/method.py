"""Methods: how drafts are made. One entry here is all that a new method needs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from peagle_bench.core.names import resolve
from peagle_bench.core.profile import HeadSpec


class Method(BaseModel):
    """A way of making drafts, and how vLLM is told to use it."""

    model_config = ConfigDict(frozen=True)

    name: str
    """What users type and cells are labelled with."""
    title: str
    """What charts and tables print."""
    vllm_method: str | None = None
    """The `method` of --speculative-config; None: the server does not speculate."""
    parallel_drafting: bool = False
    """All K drafts in one forward of the drafter."""
    needs_head: bool = False
    """A profile must name weights for this method."""
    since: str = "0.0"
    """First vLLM release that serves it."""
    aliases: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    """Further keys of --speculative-config."""

    @property
    def speculates(self) -> bool:
        return self.vllm_method is not None

    def speculative_config(self, depth: int, head: HeadSpec | None) -> dict[str, Any] | None:
        """The JSON object of --speculative-config; None for the baseline.

        depth: K, tokens drafted per step, at least 1. head: the drafter's weights, required
        exactly when `needs_head`.
        """
        if self.vllm_method is None:
            return None
        config: dict[str, Any] = {"method": self.vllm_method}
        if self.needs_head:
            if head is None:
                raise ValueError(f"method {self.name} needs a head")
            config["model"] = head.model
            if head.revision is not None:
                config["revision"] = head.revision
        config["num_speculative_tokens"] = depth
        if self.parallel_drafting:
            config["parallel_drafting"] = True
        return config | self.extra


_ALL = (
    Method(name="baseline", title="baseline", aliases=("none", "ar", "autoregressive", "vanilla")),
    Method(name="eagle3", title="EAGLE-3", vllm_method="eagle3", needs_head=True, since="0.8.5"),
    Method(
        name="peagle",
        title="P-EAGLE",
        vllm_method="eagle3",
        parallel_drafting=True,
        needs_head=True,
        since="0.16",
        aliases=("parallel-eagle",),
    ),
    Method(
        name="eagle",
        title="EAGLE",
        vllm_method="eagle",
        needs_head=True,
        since="0.8",
        aliases=("eagle1", "eagle2"),
    ),
    Method(
        name="ngram",
        title="n-gram",
        vllm_method="ngram",
        since="0.8",
        aliases=("prompt-lookup",),
        extra={"prompt_lookup_max": 4, "prompt_lookup_min": 2},
    ),
    Method(name="suffix", title="suffix decoding", vllm_method="suffix", since="0.11"),
    Method(
        name="draft_model",
        title="draft model",
        vllm_method="draft_model",
        needs_head=True,
        since="0.14",
        aliases=("draft",),
    ),
    Method(
        name="pard",
        title="PARD",
        vllm_method="draft_model",
        parallel_drafting=True,
        needs_head=True,
        since="0.16",
    ),
    Method(name="mtp", title="MTP", vllm_method="mtp", since="0.11"),
    Method(name="medusa", title="Medusa", vllm_method="medusa", needs_head=True, since="0.8"),
    Method(name="dflash", title="DFlash", vllm_method="dflash", needs_head=True, since="0.20"),
    Method(name="dspark", title="DSpark", vllm_method="dspark", needs_head=True, since="0.30"),
)
METHODS: dict[str, Method] = {m.name: m for m in _ALL}


def method_named(name: str) -> Method:
    """The method that `name` means, in any usual spelling. Raises UnknownName."""
    aliases = {a: m.name for m in _ALL for a in m.aliases}
    return METHODS[resolve("method", name, METHODS, aliases)]
