"""The server's counters: scrape, parse, subtract.

Names are matched whole, with or without `_total`: beside each counter stands a `_created` gauge
that holds a Unix time. Values are summed over engines.
"""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from peagle_bench.core.record import CounterDelta, CounterSnapshot

_PLAIN = {
    "vllm:spec_decode_num_drafts": "num_drafts",
    "vllm:spec_decode_num_draft_tokens": "num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "num_accepted_tokens",
    "vllm:prompt_tokens": "prompt_tokens",
    "vllm:generation_tokens": "generation_tokens",
    "vllm:prefix_cache_hits": "prefix_cache_hits",
    "vllm:prefix_cache_queries": "prefix_cache_queries",
    "vllm:num_preemptions": "num_preemptions",
    "vllm:request_success": "requests_finished",
}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_DELTAS = (
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_hits",
    "num_preemptions",
    "requests_finished",
)


def parse_metrics(text: str) -> CounterSnapshot:
    """A snapshot of the counters we read. Raises ValueError for text that is not Prometheus'."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    engines: set[str] = set()
    models: set[str] = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            if name == _PER_POSITION and "position" in sample.labels:
                at = int(sample.labels["position"])
                positions[at] = positions.get(at, 0.0) + sample.value
            elif name in _PLAIN:
                field = _PLAIN[name]
                sums[field] = sums.get(field, 0.0) + sample.value
            else:
                continue
            engines.add(sample.labels.get("engine", ""))
            models.add(sample.labels.get("model_name", ""))
    per_pos = tuple(positions.get(i, 0.0) for i in range(max(positions) + 1)) if positions else None
    return CounterSnapshot(
        **sums,
        accepted_per_pos=per_pos,
        engines=tuple(sorted(engines)),
        models=tuple(sorted(models)),
    )


def scrape(metrics_url: str, timeout_s: float = 10.0) -> CounterSnapshot:
    """The counters now. Raises httpx.HTTPError when they cannot be read."""
    response = httpx.get(metrics_url, timeout=timeout_s, trust_env=False)
    response.raise_for_status()
    return parse_metrics(response.text)


def subtract(before: CounterSnapshot, after: CounterSnapshot) -> CounterDelta:
    """after - before; what cannot be trusted is named in `problems`.

    A series that appears only afterwards counts from 0: vLLM registers some at first use.
    """
    problems: list[str] = []
    values: dict[str, float | None] = {}
    for field in _DELTAS:
        old, new = getattr(before, field), getattr(after, field)
        if new is None:
            values[field] = None
            if old is not None:
                problems.append(f"{field} is gone from /metrics")
            continue
        values[field] = new - (old or 0.0)
        if new < (old or 0.0):
            problems.append(f"{field} went down from {old:g} to {new:g}: the server restarted")
    if before.engines and before.engines != after.engines:
        problems.append(f"engines changed from {before.engines} to {after.engines}")
    if before.models and before.models != after.models:
        problems.append(f"models changed from {before.models} to {after.models}")
    per_pos = None
    if after.accepted_per_pos is not None:
        old_pos = before.accepted_per_pos or (0.0,) * len(after.accepted_per_pos)
        if len(old_pos) != len(after.accepted_per_pos):
            problems.append("the number of draft positions changed")
        else:
            per_pos = tuple(b - a for a, b in zip(old_pos, after.accepted_per_pos, strict=True))
    return CounterDelta(**values, accepted_per_pos=per_pos, problems=tuple(problems))
