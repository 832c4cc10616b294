from __future__ import annotations

import socket
from collections import Counter, OrderedDict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from peagle_bench.scoring.inside.wire import Channel, ChannelClosed, Opaque, decode, encode


def through(value: Any) -> Any:
    """A value's way over a real channel."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours.fileno()).send({"value": encode(value)})
        return decode(Channel(theirs.fileno()).receive()["value"])


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 1 << 63, -(1 << 200), 10**5000, 0.1, -0.0, 1e308, float("inf"), "",
     "ä\ud800\x00", b"\xff", bytearray(b"1"), 1 + 2j, [], (), (1,), [1, (2, [3])], {1: "a", "1": 2},
     {(1, 2): None}, {1, 2}, set(), frozenset({1}), range(3, 9, 2), Decimal("1.10"),
     Fraction(1, 3), ["list", 1], [["int", "0x1"]], {"opaque": ["tuple"]}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_plain_value_arrives_as_it_was(value: Any) -> None:
    arrived = through(value)
    assert arrived == value
    assert type(arrived) is type(value)
    assert isinstance(value, int) or repr(arrived) == repr(value)


def test_not_a_number_arrives_as_such() -> None:
    assert through(float("nan")) != through(float("nan"))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (namedtuple("P", "x y")(1, 2), (1, 2)),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float64(0.5), 0.5),
        ({"a": 1}.keys(), {"a"}),
    ],
)  # fmt: skip
def test_a_subclass_arrives_as_the_plain_type(value: Any, plain: Any) -> None:
    assert through(value) == plain
    assert type(through(value)) is type(plain)


def test_an_iterator_arrives_as_one_that_can_be_read_once() -> None:
    arrived = through(n * n for n in range(3))
    assert arrived != [0, 1, 4]
    assert list(arrived) == [0, 1, 4]
    assert list(arrived) == []


@pytest.mark.parametrize("value", [object(), np.array([1]), type, len, Ellipsis])
def test_anything_else_arrives_as_what_equals_nothing(value: Any) -> None:
    arrived = through([value])
    assert isinstance(arrived[0], Opaque)
    assert arrived != [value]
    assert arrived != through([value])


@pytest.mark.parametrize(
    "forged",
    [["no such kind"], [], [1], {"a": 1}, ["int"], ["int", "x"], ["range", 1], ["dict", [1]],
     ["set", ["list"]], ["Decimal", "x"], ["Fraction", "0x1", "0x0"], ["bytes", "zz"], [["list"]],
     ["float", None], ["list", {"a": 1}]],
    ids=repr,
)  # fmt: skip
def test_what_no_encoder_wrote_is_refused(forged: Any) -> None:
    with pytest.raises(ValueError):
        decode(forged)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"\0\0\0\4[1]", b"\xff\xff\xff\xff", b"\0\0\0\2{]", b"\0\0\0\2[]",
     b"\0\0\x27\x10" + b"[" * 10_000],
)  # fmt: skip
def test_what_is_no_frame_closes_the_channel(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(data)
        ours.close()
        with pytest.raises(ChannelClosed):
            Channel(theirs.fileno()).receive()


def test_a_frame_that_is_too_long_is_not_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ValueError, match="32 MiB"):
        Channel(ours.fileno()).send({"value": "a" * (33 << 20)})
