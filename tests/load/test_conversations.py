"""Conversations over a real socket: what each turn is sent with, and what a failure costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from peagle_bench.core.suite import Message, Prompt, Sampling
from peagle_bench.load.client import Asking, LoadRequest
from peagle_bench.load.driver import Driven, Limits, drive
from peagle_bench.load.transport import Endpoint
from tests.conftest import END, HEAD, ByteServer, Script, framed
from tests.load.test_client import DONE, ROLE, event, usage

Serve = Callable[[Script], ByteServer]
ASKING = Asking("m", Sampling(), max_tokens=8)


def talk(name: str, *turns: str) -> Prompt:
    opening = (Message(role="system", content="be brief"), Message(role="user", content=turns[0]))
    return Prompt(prompt_id=name, messages=opening, follow_ups=turns[1:])


def reply(text: str, reasoning: str = "") -> list[tuple[float, bytes | None]]:
    think = [event(delta={"reasoning": reasoning}, ids=[9])] if reasoning else []
    events = [ROLE, *think, event(text, [1], finish_reason="stop"), usage(1 + len(think)), DONE]
    return [(0.01, HEAD + framed(*events) + END)]


def held(server: ByteServer, *requests: LoadRequest, c: int = 1) -> Driven:
    return asyncio.run(drive(Endpoint(server.url), list(requests), c, Limits(5, 5)))


def bodies(server: ByteServer) -> list[dict[str, Any]]:
    return [json.loads(r.partition(b"\r\n\r\n")[2]) for r in server.requests]


def contents(body: dict[str, Any]) -> list[str]:
    return [m["content"] for m in body["messages"]]


def test_the_next_turn_carries_the_models_own_reply(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda n: reply(f"reply {n}"))
    driven = held(server, LoadRequest(talk("a", "one", "two", "three"), ASKING))
    assert [contents(b) for b in bodies(server)] == [
        ["be brief", "one"],
        ["be brief", "one", "reply 0", "two"],
        ["be brief", "one", "reply 0", "two", "reply 1", "three"],
    ]
    assert [(r.prompt_id, r.turn, r.index, r.text) for r in driven.records] == [
        ("a", 1, 0, "reply 0"),
        ("a", 2, 1, "reply 1"),
        ("a", 3, 2, "reply 2"),
    ]


def test_reasoning_stays_out_of_the_conversation(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda n: reply("answer", reasoning="hmm"))
    driven = held(server, LoadRequest(talk("a", "one", "two"), ASKING))
    assert contents(bodies(server)[1]) == ["be brief", "one", "answer", "two"]
    assert (driven.records[0].text, driven.records[0].reasoning) == ("answer", "hmm")


def test_a_replay_sends_the_given_replies_whatever_the_model_says(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda n: reply("something else"))
    driven = held(server, LoadRequest(talk("a", "one", "two"), ASKING, replies=("given",)))
    assert contents(bodies(server)[1]) == ["be brief", "one", "given", "two"]
    assert [r.text for r in driven.records] == ["something else"] * 2


def test_a_conversation_holds_its_place_until_it_ends(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda n: reply("r"))
    requests = [LoadRequest(talk(name, "one", "two"), ASKING) for name in "abcdef"]
    driven = held(server, *requests, c=2)
    assert server.peak == 2
    assert driven.client.peak_in_flight == 2
    spans = {}
    for name in "abcdef":
        mine = [r for r in driven.records if r.prompt_id == name]
        assert [r.turn for r in mine] == [1, 2]
        assert mine[1].scheduled_ns >= mine[0].end_ns
        spans[name] = (mine[0].sent_ns, mine[1].end_ns)
    edges = sorted([(s, 1) for s, _ in spans.values()] + [(e, -1) for _, e in spans.values()])
    open_now = most = 0
    for _, step in edges:
        open_now += step
        most = max(most, open_now)
    assert most == 2


def test_after_a_failed_turn_the_later_ones_are_not_sent_and_the_others_go_on(
    serve_bytes: Serve,
) -> None:
    bad = b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}"
    server = serve_bytes(lambda n: [(0, bad)] if n == 0 else reply("fine"))
    live = LoadRequest(talk("a", "one", "two", "three"), ASKING)
    driven = held(server, live, LoadRequest(talk("b", "one", "two"), ASKING))
    assert len(server.requests) == 3
    errors = [r.error for r in driven.records]
    assert errors[0] is not None and errors[0].startswith("HTTP 500")
    assert errors[1:3] == ["not sent: turn 1 of this conversation had failed"] * 2
    assert errors[3:] == [None, None]


def test_a_stream_that_ended_in_an_error_is_not_put_into_the_conversation(
    serve_bytes: Serve,
) -> None:
    broken = [(0.0, HEAD + framed(event("half", [1]), b'data: {"error": "gone"}\n\n', DONE) + END)]
    server = serve_bytes(lambda n: broken)
    driven = held(server, LoadRequest(talk("a", "one", "two"), ASKING))
    assert len(server.requests) == 1
    assert [r.ok for r in driven.records] == [False, False]


def test_raw_text_and_token_ids_go_to_the_completions_endpoint(serve_bytes: Serve) -> None:
    stream = framed(
        b'data: {"choices": [{"index": 0, "text": " x", "token_ids": [4], "prompt_token_ids": [7],'
        b' "finish_reason": "length"}]}\n\n',
        usage(1),
        DONE,
    )
    server = serve_bytes(lambda _: [(0, HEAD + stream + END)])
    prompts = [
        Prompt(prompt_id="t", completion="def f():", max_tokens=3),
        Prompt(prompt_id="i", completion=(5, 6)),
    ]
    driven = held(server, *(LoadRequest(p, ASKING) for p in prompts))
    assert all(r.startswith(b"POST /v1/completions ") for r in server.requests)
    text, ids = bodies(server)
    assert (text["prompt"], text["max_tokens"]) == ("def f():", 3)
    assert (ids["prompt"], ids["max_tokens"]) == ([5, 6], 8)
    assert [(r.error, r.text, r.token_ids) for r in driven.records] == [(None, " x", (4,))] * 2
    assert driven.records[0].prompt_token_digest is not None


def test_tools_are_rendered_and_never_called(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda n: reply("fine"))
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    message = Message(role="user", content="hi")
    held(server, LoadRequest(Prompt(prompt_id="a", messages=(message,), tools=(tool,)), ASKING))
    (body,) = bodies(server)
    assert (body["tools"], body["tool_choice"]) == ([tool], "none")
