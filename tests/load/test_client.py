"""Real bytes over a real socket, through the driver, into records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from peagle_bench.analysis.metrics import tpot_s
from peagle_bench.core.record import RequestRecord
from peagle_bench.core.suite import Message, Prompt, Sampling
from peagle_bench.load.client import Asking, LoadRequest
from peagle_bench.load.driver import Driven, Limits, Progress, drive
from peagle_bench.load.transport import Endpoint
from tests.conftest import END, HEAD, ByteServer, Script, framed

Serve = Callable[[Script], ByteServer]


def requests(count: int = 1) -> list[LoadRequest]:
    asking = Asking("m", Sampling(), max_tokens=8)
    message = Message(role="user", content="hi")
    prompts = [Prompt(prompt_id=f"p{i}", messages=(message,)) for i in range(count)]
    return [LoadRequest(p, asking) for p in prompts]


def driven(server: ByteServer, count: int = 1, c: int = 1, limits: Limits | None = None) -> Driven:
    limits = limits or Limits(5, 5)
    return asyncio.run(drive(Endpoint(server.url), requests(count), c, limits))


def one(server: ByteServer, limits: Limits | None = None) -> RequestRecord:
    return driven(server, limits=limits).records[0]


def event(content: str = "", ids: Sequence[int] | None = None, **fields: Any) -> bytes:
    finish = fields.pop("finish_reason", None)
    delta = fields.pop("delta", {"content": content})
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = list(ids)
    return b"data: " + json.dumps({"model": "m", "choices": [choice], **fields}).encode() + b"\n\n"


def usage(completion: int, **fields: Any) -> bytes:
    body = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": completion}, **fields}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ROLE = event(delta={"role": "assistant", "content": ""})
DONE = b"data: [DONE]\n\n"


def test_an_event_in_three_packets_is_one_record_with_its_text(serve_bytes: Serve) -> None:
    whole = event("a  b", [1], finish_reason="stop") + usage(1) + DONE
    packets = [whole[:5], whole[5:40], whole[40:]]
    server = serve_bytes(lambda _: [(0, HEAD), *((0.02, framed(p)) for p in packets), (0, END)])
    got = one(server)
    assert (got.error, got.text, got.completion_tokens) == (None, "a  b", 1)
    assert got.chunk_tokens == (1,)


def test_six_events_in_one_packet_are_six_chunks_and_one_merged_read(serve_bytes: Serve) -> None:
    events = [event("x", [i]) for i in range(5)] + [event("x", [5], finish_reason="stop")]
    server = serve_bytes(lambda _: [(0, HEAD + framed(*events, usage(6), DONE) + END)])
    got = one(server)
    assert got.error is None
    assert got.chunk_tokens == (1,) * 6
    assert got.merged_reads == 1


def test_a_character_cut_between_packets_survives(serve_bytes: Serve) -> None:
    raw = json.dumps(
        {"choices": [{"delta": {"content": "é😀"}, "finish_reason": "stop"}]}, ensure_ascii=False
    ).encode()
    stream = b"data: " + raw + b"\n\n" + usage(2) + DONE
    at = stream.index(b"\xc3") + 1
    emoji = stream.index(b"\xf0\x9f") + 2
    parts = [stream[:at], stream[at:emoji], stream[emoji:]]
    server = serve_bytes(lambda _: [(0, HEAD), *((0.02, framed(p)) for p in parts), (0, END)])
    assert one(server).text == "é😀"


def test_the_role_only_chunk_is_not_the_first_token(serve_bytes: Serve) -> None:
    server = serve_bytes(
        lambda _: [
            (0, HEAD + framed(ROLE)),
            (0.1, framed(event("a", [1], finish_reason="stop"), usage(1), DONE) + END),
        ]
    )
    got = one(server)
    assert len(got.chunk_ns) == 1
    assert got.chunk_ns[0] - got.sent_ns >= 90_000_000


def test_empty_choices_in_the_first_and_last_chunk_are_no_tokens(serve_bytes: Serve) -> None:
    first = b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
    stream = framed(first, event("a", finish_reason="stop"), usage(1), DONE)
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert (got.error, got.completion_tokens, len(got.chunk_ns)) == (None, 1, 1)


@pytest.mark.parametrize("tail", [b"", DONE])
def test_an_error_event_inside_a_200_stream_fails_the_request(
    serve_bytes: Serve, tail: bytes
) -> None:
    error = b'data: {"error":{"message":"engine gone","code":500}}\n\n'
    stream = framed(event("a", [1]), error + tail)
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.error == "server error in the stream: engine gone"
    assert got.chunk_tokens == (1,)


def test_a_200_without_a_token_is_a_failure(serve_bytes: Serve) -> None:
    stream = framed(ROLE, event(finish_reason="stop"), usage(0), DONE)
    assert one(serve_bytes(lambda _: [(0, HEAD + stream + END)])).error == (
        "200 without a single token"
    )


def test_a_stream_that_ends_early_is_a_failure_that_keeps_its_chunks(serve_bytes: Serve) -> None:
    got = one(serve_bytes(lambda _: [(0, HEAD + framed(event("a", [1])) + END)]))
    assert got.error == "the end of the stream came before a finish_reason"
    assert got.chunk_tokens == (1,)


def test_a_reset_after_five_tokens_is_a_failure_that_keeps_them(serve_bytes: Serve) -> None:
    parts = [(0.0, HEAD), *((0.01, framed(event("a", [i]))) for i in range(5)), (0.05, None)]
    got = one(serve_bytes(lambda _: parts))
    assert got.error is not None
    assert sum(got.chunk_tokens) == 5


def test_an_http_error_is_recorded_with_the_servers_words(serve_bytes: Serve) -> None:
    body = b'{"error":{"message":"the model `x` does not exist"}}'
    head = f"HTTP/1.1 404 Not Found\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    got = one(serve_bytes(lambda _: [(0, head + body)]))
    assert got.error == "HTTP 404: the model `x` does not exist"
    assert got.status == 404


def test_headers_and_then_nothing_ends_after_the_idle_time(serve_bytes: Serve) -> None:
    got = one(serve_bytes(lambda _: [(0, HEAD), (60, b"")]), Limits(5, 0.3))
    assert got.error == "nothing received for 0.3 s"


def test_silence_ends_after_the_first_byte_time(serve_bytes: Serve) -> None:
    got = one(serve_bytes(lambda _: [(60, b"")]), Limits(0.3, 5))
    assert got.error == "no response within 0.3 s"


def test_25_chunks_of_4_tokens_20_ms_apart_are_5_ms_per_token(serve_bytes: Serve) -> None:
    ids = [[4 * i + j for j in range(4)] for i in range(25)]
    last = event("abcd", ids[-1], finish_reason="stop")
    parts = [(0.0, HEAD + framed(event("abcd", ids[0])))]
    parts += [(0.02, framed(event("abcd", i))) for i in ids[1:-1]]
    parts += [(0.02, framed(last, usage(100), DONE) + END)]
    got = one(serve_bytes(lambda _: parts))
    assert got.completion_tokens == 100
    # 24 gaps over 96 tokens; the stub's sleeps are late by up to a few milliseconds each.
    exact = (got.chunk_ns[-1] - got.chunk_ns[0]) / 1e9 / 96
    assert tpot_s(got) == pytest.approx(exact, rel=1e-12)
    assert exact >= 0.005


def test_usage_in_every_chunk_is_cumulative(serve_bytes: Serve) -> None:
    def at(total: int, **fields: Any) -> bytes:
        return event(
            "abcd" if not fields.get("last") else "",
            usage={"prompt_tokens": 4, "completion_tokens": total},
            finish_reason="stop" if fields.get("last") else None,
        )

    stream = framed(at(4), at(8), at(12), at(12, last=True), DONE)
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.completion_tokens == 12
    assert got.chunk_tokens == (4, 4, 4)


def test_missing_usage_is_none_and_never_guessed(serve_bytes: Serve) -> None:
    stream = framed(event("a", [1]), event("b", [2], finish_reason="stop"), DONE)
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.error is None
    assert got.completion_tokens is None


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_the_first_token_and_content_stays_none(
    serve_bytes: Serve, field: str
) -> None:
    stream = framed(
        ROLE,
        event(delta={field: "think"}, ids=[1]),
        event(delta={field: "more"}, ids=[2], finish_reason="length"),
        usage(2),
        DONE,
    )
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.error is None
    assert got.chunk_tokens == (1, 1)
    assert got.first_content_ns is None


def test_a_token_without_visible_text_still_counts(serve_bytes: Serve) -> None:
    stream = framed(event("", [9]), event("é", [10], finish_reason="stop"), usage(2), DONE)
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.chunk_tokens == (1, 1)


def test_per_request_speculation_is_read_from_the_usage_chunk(serve_bytes: Serve) -> None:
    spoken = {
        "num_spec_steps": 3,
        "num_draft_tokens": 9,
        "num_accepted_draft_tokens": 5,
        "acceptance_histogram": [0, 1, 2, 0],
    }
    stream = framed(
        event("a", [1], finish_reason="stop"),
        usage(1, metrics={"speculative_decoding": spoken}),
        DONE,
    )
    got = one(serve_bytes(lambda _: [(0, HEAD + stream + END)]))
    assert got.spec is not None
    assert (got.spec.num_drafts, got.spec.num_draft_tokens, got.spec.num_accepted_tokens) == (
        3,
        9,
        5,
    )
    assert got.spec.histogram == (0, 1, 2, 0)


GOOD = HEAD + framed(event("a", [1], finish_reason="stop"), usage(1), DONE) + END


def test_128_requests_are_in_flight_when_128_are_asked_for(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda _: [(0.5, GOOD)])
    got = driven(server, count=300, c=128)
    assert all(r.ok for r in got.records)
    assert server.peak == 128
    assert got.client.peak_in_flight == 128


def test_every_request_is_sent_once_and_in_order(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda _: [(0, GOOD)])
    got = driven(server, count=40, c=4)
    assert [r.index for r in got.records] == list(range(40))
    assert len(server.requests) == 40


def test_a_connection_closed_while_idle_is_replaced_without_a_failure(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda _: [(0, GOOD), (0, b"CLOSE")])
    got = driven(server, count=10, c=2)
    assert [r.error for r in got.records] == [None] * 10


def test_connection_close_is_obeyed(serve_bytes: Serve) -> None:
    closing = GOOD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    server = serve_bytes(lambda _: [(0, closing), (0, b"CLOSE")])
    assert all(r.ok for r in driven(server, count=6, c=2).records)


def test_a_body_that_ends_with_the_connection_is_whole(serve_bytes: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    body = event("a", [1], finish_reason="stop") + usage(1) + DONE
    got = one(serve_bytes(lambda _: [(0, head + body), (0, b"CLOSE")]))
    assert (got.error, got.completion_tokens) == (None, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_response_cut_every_few_bytes_ends_where_it_ends(serve_bytes: Serve, size: int) -> None:
    parts = [(0.0, GOOD[i : i + size]) for i in range(0, len(GOOD), size)]
    got = driven(serve_bytes(lambda _: parts), count=3)
    assert [r.completion_tokens for r in got.records] == [1, 1, 1]


def test_arrivals_carry_the_kernels_stamp_and_never_lie_in_the_future(serve_bytes: Serve) -> None:
    got = driven(serve_bytes(lambda _: [(0.05, GOOD)]), count=5)
    assert got.client.clock == "kernel"
    for r in got.records:
        assert r.sent_ns + 45_000_000 < r.chunk_ns[0] <= r.end_ns
    assert got.client.lag_p99_ns is not None
    assert got.client.lag_p99_ns >= 0


def test_requests_name_sampling_and_ask_for_usage_and_token_ids(serve_bytes: Serve) -> None:
    server = serve_bytes(lambda _: [(0, GOOD)])
    one(server)
    body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert body["temperature"] == 0.0
    assert body["top_p"] == 1.0
    assert body["stream_options"] == {"include_usage": True}
    assert body["return_token_ids"] is True
    assert body["messages"] == [{"role": "user", "content": "hi"}]


def test_a_server_that_is_not_there_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(OSError):
        asyncio.run(drive(Endpoint("http://127.0.0.1:9"), requests(), 1, Limits()))


def test_a_server_that_vanishes_mid_cell_fails_its_requests_and_nothing_hangs(
    serve_bytes: Serve,
) -> None:
    def script(number: int) -> list[tuple[float, bytes | None]]:
        return [(0, GOOD)] if number < 3 else [(0, None)]

    got = driven(serve_bytes(script), count=8, c=1)
    assert [r.ok for r in got.records] == [True] * 3 + [False] * 5
    assert len(got.records) == 8


def test_progress_counts_every_token_as_it_arrives(serve_bytes: Serve) -> None:
    parts = [(0.0, HEAD), *((0.02, framed(event("abcd", [1, 2, 3, 4]))) for _ in range(4))]
    end = framed(event("a", [5], finish_reason="stop"), usage(17), DONE) + END
    server = serve_bytes(lambda _: [*parts, (0.02, end)])
    seen: list[Progress] = []
    drives = drive(Endpoint(server.url), requests(60), 2, Limits(), seen.append)
    records = asyncio.run(drives).records
    assert all(r.ok for r in records)
    assert len(seen) >= 2
    assert all(p.in_flight == 2 and p.total == 60 for p in seen)
    arrived = [t for r in records for t in r.chunk_ns]
    rate = 17 * 60 / (max(arrived) / 1e9)
    for progress in seen:
        assert progress.tok_per_s == pytest.approx(rate, rel=0.25)
