"""A server with known truth: exact step times, exact acceptance, counters that add up.

`python -m peagle_bench.targets.calibration --port N …` speaks vLLM's streaming bytes without a
model. Every step is written at its absolute due time, so what the harness reports beyond the truth
is the harness's own error. Results from it are always an ESTIMATE.

A step of a request takes `step_ms` plus drafting: K times `draft_ms` drafted one after another,
once `draft_ms` drafted in parallel. A step accepts draft i+1 with probability acceptance[i] given
that draft i was accepted, drawn from a generator seeded by the request's messages.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field

from peagle_bench.core.method import METHODS
from peagle_bench.core.plan import RunConfig, ServerGroup
from peagle_bench.core.profile import Profile
from peagle_bench.targets.process import ServerSpec, free_port

VOCABULARY = range(1000, 1029)
"""Token ids of its outputs, and of prompts drawn at random for it."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server does, exactly."""

    served_name: str = "calibration"
    step_ms: float = 4.0
    draft_ms: float = 1.0
    prefill_ms: float = 20.0
    acceptance: tuple[float, ...] = (0.8, 0.6, 0.4)
    """Conditional acceptance by position; positions beyond it accept nothing."""
    depth: int = 0
    """K; 0: no speculation."""
    parallel: bool = False
    fail_share: float = 0.0
    """Share of requests answered with HTTP 500, drawn by the request's seed."""
    batch_ms: float = 0.0
    """Added to a step for every other request in flight."""
    merge: int = 1
    """Steps whose tokens go into one chunk, as a slow reader or a stream interval makes them."""
    lossy: bool = False
    """Speculation changes the output: a token depends on K too, as it must not."""
    die_after: int | None = None
    """Exit, without a word, when this many requests have been taken."""

    @property
    def step_s(self) -> float:
        drafts = 0 if self.depth == 0 else 1 if self.parallel else self.depth
        return (self.step_ms + drafts * self.draft_ms) / 1e3

    @property
    def expected_acceptance_length(self) -> float:
        """1 + Σ over positions of the product of conditional acceptances up to it."""
        total, reach = 1.0, 1.0
        for position in range(self.depth):
            reach *= self.acceptance[position] if position < len(self.acceptance) else 0.0
            total += reach
        return total


@dataclass(frozen=True, slots=True)
class Served:
    """One request as the server itself saw it. CLOCK_MONOTONIC nanoseconds."""

    key: str
    """`key_of` what was asked."""
    received_ns: int
    """Its last byte was read."""
    first_ns: int
    """Its first token was written."""
    last_ns: int
    first_tokens: int
    """Tokens of the first write."""
    tokens: int


@dataclass(slots=True)
class _Counters:
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    per_pos: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    generated: int = 0
    finished: int = 0
    taken: int = 0


def server_spec(profile: Profile, group: ServerGroup, config: RunConfig) -> ServerSpec:
    """The calibration server of one group, with the profile's flags and the run's over them."""
    method = METHODS[group.method]
    port = free_port()
    flags = profile.flags | config.server_flags
    words = [f"--port={port}", f"--served-name={profile.target.served_name}"]
    words += [f"--{n}" if v is True else f"--{n}={v}" for n, v in flags.items()]
    if method.speculates:
        words += [f"--depth={group.depth}"]
        words += ["--parallel"] if method.parallel_drafting else []
    return ServerSpec(
        label=group.label,
        command=(sys.executable, "-m", "peagle_bench.targets.calibration", *words),
        env={},
        host="127.0.0.1",
        port=port,
        served_name=profile.target.served_name,
    )


class CalibrationServer:
    """Serves /v1/chat/completions and /v1/completions (streaming), /v1/models, /metrics, /health
    and /version."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.counters = _Counters(per_pos=[0] * truth.depth)
        self.in_flight = self.peak_in_flight = 0
        self.served: list[Served] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after another."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = 0
                for line in head.split("\r\n"):
                    name, _, value = line.partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = await reader.readexactly(length)
                path = head.split(" ", 2)[1]
                if path in ("/v1/chat/completions", "/v1/completions"):
                    await self._generate(json.loads(body), writer)
                else:
                    self._plain(path, writer)
                await writer.drain()
        writer.close()

    def _plain(self, path: str, writer: asyncio.StreamWriter) -> None:
        answers = {
            "/health": "",
            "/version": json.dumps({"version": "calibration"}),
            "/v1/models": json.dumps({"object": "list", "data": [{"id": self.truth.served_name}]}),
            "/metrics": self._metrics(),
            "/peak": json.dumps(self.peak_in_flight),
            "/served": json.dumps([asdict(s) for s in self.served]),
        }
        known = path in answers
        _respond(writer, 200 if known else 404, answers.get(path, "{}"))

    def _metrics(self) -> str:
        c = self.counters
        label = f'engine="0",model_name="{self.truth.served_name}"'
        lines = []

        def counter(name: str, value: float, labels: str = label) -> None:
            lines.append(f"# TYPE vllm:{name} counter")
            lines.append(f"vllm:{name}_total{{{labels}}} {value}")
            lines.append(f"vllm:{name}_created{{{labels}}} 1.7e9")

        counter("prompt_tokens", c.prompt_tokens)
        counter("generation_tokens", c.generated)
        counter("prefix_cache_hits", 0)
        counter("num_preemptions", 0)
        counter("request_success", c.finished, f'{label},finished_reason="stop"')
        if self.truth.depth:
            counter("spec_decode_num_drafts", c.drafts)
            counter("spec_decode_num_draft_tokens", c.draft_tokens)
            counter("spec_decode_num_accepted_tokens", c.accepted)
            for position, value in enumerate(c.per_pos):
                labels = f'{label},position="{position}"'
                counter("spec_decode_num_accepted_tokens_per_pos", value, labels)
        return "\n".join(lines) + "\n"

    async def _generate(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        truth, counters = self.truth, self.counters
        counters.taken += 1
        if truth.die_after is not None and counters.taken > truth.die_after:
            sys.stderr.write("RuntimeError: told to die\n")
            sys.stderr.flush()
            os._exit(17)
        asked = json.dumps(body.get("messages", body.get("prompt")))
        draw = random.Random(hashlib.sha256(asked.encode()).digest())
        if draw.random() < truth.fail_share:
            error = {"error": {"message": "told to fail", "code": 500}}
            _respond(writer, 500, json.dumps(error))
            return
        limit = int(str(body.get("max_tokens", 16)))
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await self._stream(body, draw, limit, writer)
        finally:
            self.in_flight -= 1

    async def _stream(
        self,
        body: dict[str, object],
        draw: random.Random,
        limit: int,
        writer: asyncio.StreamWriter,
    ) -> None:
        truth, counters = self.truth, self.counters
        loop = asyncio.get_running_loop()
        received_ns, first_ns, written_ns, first_tokens = time.monotonic_ns(), 0, 0, 0
        held: list[int] = []
        steps_held = 0
        due = loop.time() + truth.prefill_ms / 1e3
        await _until(loop, due)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        base = {"id": "c", "object": "chat.completion.chunk", "model": truth.served_name}
        told = bool(body.get("return_token_ids"))
        chat = "messages" in body
        prompt = _prompt_ids(body)
        prompt_told = prompt if told else None
        if chat:
            role = {"role": "assistant", "content": ""}
            first = {"index": 0, "delta": role, "finish_reason": None}
            _event(writer, base | {"choices": [first], "prompt_token_ids": prompt_told})
        counters.prompt_tokens += len(prompt)
        sent = drafts = accepted_in_all = 0
        histogram = [0] * (truth.depth + 1)
        step = 1  # the prefill's step gives one token without a draft
        while True:
            step = min(step, limit - sent)
            last = sent + step >= limit
            # Greedy methods must agree: a token depends on its place alone.
            start = sent + (truth.depth if truth.lossy else 0)
            held += [VOCABULARY[(start + i) % len(VOCABULARY)] for i in range(step)]
            steps_held += 1
            if last or steps_held == truth.merge:
                text = "".join(f" w{i}" for i in held)
                choice: dict[str, object] = {
                    "index": 0,
                    "finish_reason": "length" if last else None,
                    "token_ids": held if told else None,
                }
                choice |= {"delta": {"content": text}} if chat else {"text": text}
                if not chat and first_ns == 0:
                    choice["prompt_token_ids"] = prompt_told
                _event(writer, base | {"choices": [choice]})
                written_ns = time.monotonic_ns()
                if first_ns == 0:
                    first_ns, first_tokens = written_ns, len(held)
                held, steps_held = [], 0
            sent += step
            counters.generated += step
            if last:
                break
            due += truth.step_s + truth.batch_ms / 1e3 * (self.in_flight - 1)
            await _until(loop, due)
            accepted = 0
            while accepted < min(truth.depth, len(truth.acceptance)):
                if draw.random() >= truth.acceptance[accepted]:
                    break
                accepted += 1
            if truth.depth:
                drafts += 1
                accepted_in_all += accepted
                histogram[accepted] += 1
                counters.drafts += 1
                counters.draft_tokens += truth.depth
                counters.accepted += accepted
                for position in range(accepted):
                    counters.per_pos[position] += 1
            step = accepted + 1
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": sent,
            "total_tokens": len(prompt) + sent,
        }
        final: dict[str, object] = base | {"choices": [], "usage": usage}
        if truth.depth:
            final["metrics"] = {
                "speculative_decoding": {
                    "num_spec_steps": drafts,
                    "num_draft_tokens": drafts * truth.depth,
                    "num_accepted_draft_tokens": accepted_in_all,
                    "acceptance_histogram": histogram,
                    "num_spec_tokens": truth.depth,
                }
            }
        counters.finished += 1
        asked = key_of(body.get("messages", body.get("prompt")))
        self.served.append(Served(asked, received_ns, first_ns, written_ns, first_tokens, sent))
        _event(writer, final)
        data = b"data: [DONE]\n\n"
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")


def key_of(asked: object) -> str:
    """What a request is recognised by: its messages or prompt, as they were sent."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _prompt_ids(body: dict[str, object]) -> list[int]:
    """Token ids as they were sent, else some for the text: its bytes, template and all."""
    held = body.get("messages", body.get("prompt"))
    if isinstance(held, list) and all(isinstance(i, int) for i in held):
        return [int(i) for i in held]
    text = held if isinstance(held, str) else json.dumps(held)
    return [3 + byte for byte in text.encode()]


async def _until(loop: asyncio.AbstractEventLoop, due: float) -> None:
    wait = due - loop.time()
    if wait > 0:
        await asyncio.sleep(wait)


def _event(writer: asyncio.StreamWriter, payload: dict[str, object]) -> None:
    data = f"data: {json.dumps(payload, separators=(',', ':'))}\n\n".encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _respond(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = text.encode()
    reason = {200: "OK", 404: "Not Found", 500: "Internal Server Error"}[status]
    writer.write(
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def serve(truth: Truth, port: int) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT."""
    server = await asyncio.start_server(CalibrationServer(truth).handle, "127.0.0.1", port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    async with server:
        await stop.wait()


def _parse(words: list[str]) -> tuple[Truth, int]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-name", default="calibration")
    parser.add_argument("--step-ms", type=float, default=4.0)
    parser.add_argument("--draft-ms", type=float, default=1.0)
    parser.add_argument("--prefill-ms", type=float, default=20.0)
    parser.add_argument("--acceptance", default="0.8,0.6,0.4")
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--parallel", action="store_true")
    parser.add_argument("--fail-share", type=float, default=0.0)
    parser.add_argument("--batch-ms", type=float, default=0.0)
    parser.add_argument("--merge", type=int, default=1)
    parser.add_argument("--lossy", action="store_true")
    parser.add_argument("--die-after", type=int, default=None)
    args = vars(parser.parse_args(words))
    port = args.pop("port")
    args["acceptance"] = tuple(float(a) for a in args["acceptance"].split(","))
    return Truth(**args), port


if __name__ == "__main__":
    asyncio.run(serve(*_parse(sys.argv[1:])))
