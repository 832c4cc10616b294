"""Requests as bytes, and one exchange into one record: framing, counting and judging."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httptools

from peagle_bench.core.record import RequestRecord, SpecMetrics, digest_of_ids
from peagle_bench.core.suite import Prompt, Sampling
from peagle_bench.load.loops import loops_at_end
from peagle_bench.load.payload import Chunk, error_of_body, parse_chunk
from peagle_bench.load.sse import EventDecoder
from peagle_bench.load.transport import Exchange


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an endpoint understands beyond the OpenAI API."""

    token_ids: bool = True
    """Ask for token ids in every chunk (vLLM)."""


CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Asking:
    """What every request of a cell is asked with."""

    model: str
    sampling: Sampling
    max_tokens: int
    """Output cap; a prompt's own lower one goes before it."""
    dialect: Dialect = Dialect()


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One conversation to be held; a single request is one of one turn."""

    prompt: Prompt
    asking: Asking
    replies: tuple[str, ...] | None = None
    """What an earlier cell's model said in each turn, to be replayed; None: the model's own
    replies go into the conversation."""

    @property
    def num_turns(self) -> int:
        return self.prompt.num_turns

    @property
    def path(self) -> str:
        return CHAT_PATH if self.prompt.messages else COMPLETIONS_PATH

    def known_bodies(self) -> list[bytes]:
        """Bodies that need no reply of this cell: of all turns in a replay, else of the first."""
        replies = self.replies or ()
        turns = self.num_turns if self.replies is not None else 1
        return [self.body(replies[:turn]) for turn in range(turns)]

    def body(self, replies: Sequence[str]) -> bytes:
        """The JSON of the streaming request after `replies`; sampling is always explicit."""
        prompt, sampling = self.prompt, self.asking.sampling
        body: dict[str, Any] = {"model": self.asking.model}
        if prompt.messages:
            body["messages"] = prompt.conversation(replies)
        else:
            body["prompt"] = prompt.completion
        body |= prompt.template_options
        if prompt.tools:  # rendered into the prompt; the reply stays text
            body |= {"tools": prompt.tools, "tool_choice": "none"}
        body |= {
            "max_tokens": min(self.asking.max_tokens, prompt.max_tokens or self.asking.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if sampling.ignore_eos:
            body["ignore_eos"] = True
        if self.asking.dialect.token_ids:
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
    turn: int = 1,
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
        turn=turn,
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
        output_digest=digest_of_ids(fold.token_ids) if fold.ids_told else None,
        num_token_ids=len(fold.token_ids) if fold.ids_told else None,
        ends_in_loop=loops_at_end(fold.token_ids) if fold.ids_told else None,
        prompt_token_digest=fold.prompt_digest,
        text="".join(fold.text),
        reasoning="".join(fold.reasoning),
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
        self.reasoning: list[str] = []
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
            self.prompt_digest = digest_of_ids(chunk.prompt_token_ids)
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
        self.text.append(chunk.content)
        self.reasoning.append(chunk.reasoning)
