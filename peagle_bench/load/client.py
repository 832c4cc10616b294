"""One exchange into one record: framing, counting and judging, after the cell."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import httptools

from peagle_bench.core.record import RequestRecord, SpecMetrics
from peagle_bench.core.suite import Prompt, Sampling
from peagle_bench.load.payload import Chunk, error_of_body, parse_chunk
from peagle_bench.load.sse import EventDecoder
from peagle_bench.load.transport import Exchange


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an endpoint understands beyond the OpenAI API."""

    token_ids: bool = True
    """Ask for token ids in every chunk (vLLM)."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request ready to be sent."""

    prompt: Prompt
    body: bytes


def chat_body(
    prompt: Prompt, *, model: str, sampling: Sampling, max_tokens: int, dialect: Dialect
) -> bytes:
    """The JSON of one streaming chat request; sampling is always explicit."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [m.model_dump() for m in prompt.messages],
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if dialect.token_ids:
        body["return_token_ids"] = True
    return json.dumps(body, ensure_ascii=False).encode()


class _Response:
    """httptools callbacks: the status, and body bytes with the read they came in."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.encoding = b""
        self.read_index = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-encoding":
            self.encoding = value.lower()

    def on_body(self, body: bytes) -> None:
        self.pieces.append((self.read_index, body))


def decode(
    exchange: Exchange,
    *,
    index: int,
    prompt: Prompt,
    scheduled_ns: int,
    origin_ns: int,
    wall_minus_mono_ns: int,
) -> RequestRecord:
    """The record of one exchange. Never raises for what a server sent: that is `error`.

    origin_ns: the cell's start; every time in the record counts from it.
    """
    stamps = exchange.stamps(wall_minus_mono_ns)
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    error = exchange.error
    try:
        for response.read_index, (_, _, data) in enumerate(exchange.reads):
            parser.feed_data(data)
    except httptools.HttpParserError as problem:
        error = error or f"not HTTP: {problem}"
    status = parser.get_status_code() if exchange.reads else None
    if status == 0:
        status = None
    if error is None and status is None:
        error = "connection closed without a response"
    if error is None and status != 200:
        error = f"HTTP {status}: {error_of_body(b''.join(p for _, p in response.pieces))}"
    if error is None and response.encoding not in (b"", b"identity"):
        error = f"content-encoding {response.encoding.decode('latin-1')} was not asked for"
    fold = _Fold()
    if status == 200:
        error = fold.take(response.pieces, stamps, error)
    ends = stamps[-1] if stamps and exchange.error is None else exchange.end_ns
    return RequestRecord(
        index=index,
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        scheduled_ns=scheduled_ns - origin_ns,
        sent_ns=exchange.sent_ns - origin_ns,
        end_ns=ends - origin_ns,
        chunk_ns=tuple(t - origin_ns for t in fold.times),
        chunk_tokens=tuple(fold.counts),
        first_content_ns=None if fold.first_content is None else fold.first_content - origin_ns,
        prompt_tokens=fold.prompt_tokens,
        completion_tokens=fold.completion_tokens,
        finish_reason=fold.finish_reason,
        model=fold.model,
        status=status,
        error=error,
        spec=fold.spec,
        token_ids=tuple(fold.token_ids) if fold.ids_told else None,
        prompt_token_digest=fold.prompt_digest,
        text="".join(fold.text),
        merged_reads=fold.merged_reads,
        reads=len(exchange.reads),
    )


class _Fold:
    """Chunks of one stream, added up."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.counts: list[int] = []
        self.token_ids: list[int] = []
        self.ids_told = False
        self.text: list[str] = []
        self.first_content: int | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.spec: SpecMetrics | None = None
        self.prompt_digest: str | None = None
        self.merged_reads = 0

    def take(
        self, pieces: list[tuple[int, bytes]], stamps: list[int], error: str | None
    ) -> str | None:
        """Fold every event; the stream's error, or the one that was known already."""
        decoder = EventDecoder()
        done = False
        in_read, events_in_read = -1, 0
        for read_index, piece in pieces:
            for data in decoder.feed(piece):
                if data.strip() == b"[DONE]":
                    done = True
                    continue
                try:
                    chunk = parse_chunk(data)
                except (ValueError, KeyError, TypeError, AttributeError) as problem:
                    return error or f"unreadable event: {problem}"
                if chunk.error is not None:
                    return error or f"server error in the stream: {chunk.error}"
                if chunk.has_token:
                    events_in_read = events_in_read + 1 if read_index == in_read else 1
                    in_read = read_index
                    self.merged_reads += events_in_read == 2
                self._add(chunk, stamps[read_index])
        if error is not None:
            return error
        if self.finish_reason is None:
            ended = "[DONE]" if done else "the end of the stream"
            return f"{ended} came before a finish_reason"
        if not self.times:
            return "200 without a single token"
        return None

    def _add(self, chunk: Chunk, at: int) -> None:
        before = self.completion_tokens or 0
        self.model = self.model or chunk.model
        if chunk.prompt_tokens is not None:
            self.prompt_tokens = chunk.prompt_tokens
        if chunk.completion_tokens is not None:
            self.completion_tokens = chunk.completion_tokens
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.spec = chunk.spec or self.spec
        if chunk.prompt_token_ids is not None:
            ids = ",".join(map(str, chunk.prompt_token_ids))
            self.prompt_digest = hashlib.sha256(ids.encode()).hexdigest()
        if not chunk.has_token:
            return
        self.times.append(at)
        if chunk.token_ids is not None:
            self.ids_told = True
            self.token_ids += chunk.token_ids
            self.counts.append(len(chunk.token_ids))
        elif chunk.completion_tokens is not None:  # cumulative usage in every chunk
            self.counts.append(max(0, chunk.completion_tokens - before))
        else:
            self.counts.append(0)
        if chunk.content and self.first_content is None:
            self.first_content = at
        self.text.append(chunk.reasoning or chunk.content)
