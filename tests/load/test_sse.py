from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.load.sse import EventDecoder


def decode(*pieces: bytes) -> list[bytes]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n\ndata: [DONE]\n\n", [b"a", b"b", b"[DONE]"]),
        (b"data: never closed\n", []),
        (b"\n\n\n", []),
        (b"dataset: x\n\n", []),
    ],
)
def test_the_grammar_of_event_streams(stream: bytes, events: list[bytes]) -> None:
    assert decode(stream) == events


def test_an_event_cut_into_three_packets_is_one_event() -> None:
    pieces = (b"data:", b' {"choices":[{"delta":{"content":"a', b'  b"}}]}\n\ndata: [DONE]\n\n')
    assert decode(*pieces) == [b'{"choices":[{"delta":{"content":"a  b"}}]}', b"[DONE]"]


def test_a_carriage_return_and_its_line_feed_may_come_in_two_packets() -> None:
    assert decode(b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n") == [b"a", b"b"]


@given(
    texts=st.lists(st.text(min_size=1).filter(lambda t: not set(t) & {"\r", "\n"}), max_size=6),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_where_the_bytes_are_cut_never_matters(
    texts: list[str], end: bytes, cuts: list[int]
) -> None:
    stream = b"".join(b"data: " + t.encode("utf-8", "surrogatepass") + end * 2 for t in texts)
    edges = [0, *sorted(min(c, len(stream)) for c in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert decode(*pieces) == [t.encode("utf-8", "surrogatepass") for t in texts]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_at_all_are_decoded_without_an_exception(pieces: list[bytes]) -> None:
    assert decode(*pieces) == decode(b"".join(pieces))
