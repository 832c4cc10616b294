"""What one event of an OpenAI-compatible stream says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from peagle_bench.core.record import SpecMetrics


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event. A chunk is neither a token nor a step: it may carry none, one or many tokens."""

    token_ids: tuple[int, ...] | None = None
    """None: the server does not tell."""
    prompt_token_ids: tuple[int, ...] | None = None
    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Cumulative, from `usage`."""
    spec: SpecMetrics | None = None
    error: str | None = None

    @property
    def has_token(self) -> bool:
        """The role-only chunk, the usage chunk and an empty delta have none."""
        return bool(self.token_ids) or bool(self.content) or bool(self.reasoning)


def parse_chunk(data: bytes) -> Chunk:
    """Raises ValueError for data that is no JSON object."""
    body = json.loads(data)
    if not isinstance(body, dict):
        raise ValueError(f"not a JSON object: {data[:80]!r}")
    if body.get("error"):
        return Chunk(error=_error_text(body["error"]))
    choices = body.get("choices") or []
    choice: dict[str, Any] = choices[0] if choices else {}
    delta = choice.get("delta") or {}
    content = delta.get("content") or choice.get("text") or ""
    usage = body.get("usage") or {}
    return Chunk(
        token_ids=_ids(choice.get("token_ids")),
        prompt_token_ids=_ids(body.get("prompt_token_ids") or choice.get("prompt_token_ids")),
        content=content,
        reasoning=delta.get("reasoning") or delta.get("reasoning_content") or "",
        finish_reason=choice.get("finish_reason"),
        model=body.get("model"),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        spec=_spec((body.get("metrics") or {}).get("speculative_decoding")),
    )


def error_of_body(body: bytes) -> str:
    """The message in an error response's body, else its first 200 characters."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return body[:200].decode("utf-8", "replace").strip()
    if isinstance(parsed, dict):
        inner = parsed.get("error") or parsed.get("detail") or parsed.get("message")
        if inner:
            return _error_text(inner)
    return json.dumps(parsed)[:200]


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)[:300]
    return str(error)[:300]


def _ids(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)


def _spec(value: Any) -> SpecMetrics | None:
    if not isinstance(value, dict):
        return None
    return SpecMetrics(
        num_drafts=value["num_spec_steps"],
        num_draft_tokens=value["num_draft_tokens"],
        num_accepted_tokens=value["num_accepted_draft_tokens"],
        histogram=tuple(value.get("acceptance_histogram") or ()),
    )
