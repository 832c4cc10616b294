"""How candidate and judge talk: frames of JSON, and plain values that survive the way exactly.

A value is copied, never unpickled: what arrives is made of Python's own types whatever the
candidate returned, so an object whose `__eq__` says yes to everything arrives as an `Opaque`, which
equals nothing. Subclasses arrive as the plain type they extend, numpy's scalars as Python's.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

FRAME_BYTES = 32 << 20
"""A longer frame is refused on both sides."""
_ITEMS = 1_000_000
"""Of an iterator, at most so many items are taken."""


class ChannelClosed(Exception):
    """The other side is gone, or sent what is no frame."""


class Opaque:
    """Stands for a value that is none of the plain types; equal to nothing but itself."""

    def __init__(self, type_name: str) -> None:
        self._type_name = type_name

    def __repr__(self) -> str:
        return f"<{self._type_name}>"


class Channel:
    """One end of a stream socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: dict[str, Any]) -> None:
        """Raises ChannelClosed, and ValueError for a message above FRAME_BYTES."""
        body = json.dumps(message).encode()
        if len(body) > FRAME_BYTES:
            raise ValueError(f"more than {FRAME_BYTES >> 20} MiB")
        data = memoryview(struct.pack("!I", len(body)) + body)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> dict[str, Any]:
        """The next message. Raises ChannelClosed."""
        (size,) = struct.unpack("!I", self._exactly(4))
        if size > FRAME_BYTES:
            raise ChannelClosed("a frame that is too long")
        try:
            message = json.loads(self._exactly(size))
        except (ValueError, RecursionError) as error:
            raise ChannelClosed("a frame that is no JSON") from error
        if not isinstance(message, dict):
            raise ChannelClosed("a frame that is no message")
        return message

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = os.read(self._fd, min(size, 1 << 20))
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not part:
                raise ChannelClosed("closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def encode(value: Any) -> Any:
    """Plain values as JSON; RecursionError for what holds itself."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    for kind, write in _SCALARS:
        if isinstance(value, kind):
            return write(value)
    for tag, kinds in _MANY:
        if isinstance(value, kinds):
            return [tag, *(encode(item) for item in value)]
    if isinstance(value, dict):
        return ["dict", *([encode(k), encode(v)] for k, v in value.items())]
    if isinstance(value, Iterator):
        return ["iterator", *(encode(item) for item in _bounded(value))]
    return _encode_foreign(value)


def _encode_foreign(value: Any) -> Any:
    """Numbers of the standard library and numpy, without importing them; the rest is opaque."""
    kind = type(value)
    if kind.__module__ == "decimal" and kind.__name__ == "Decimal":
        return ["Decimal", str(value)]
    if kind.__module__ == "fractions" and kind.__name__ == "Fraction":
        return ["Fraction", hex(value.numerator), hex(value.denominator)]
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray" and hasattr(value, "item"):
        plain = value.item()
        if isinstance(plain, bool | int | float | complex | str):
            return encode(plain)
    return ["opaque", kind.__name__]


def _bounded(items: Iterator[Any]) -> Iterator[Any]:
    for count, item in enumerate(items):
        if count >= _ITEMS:
            raise ValueError(f"an iterator of more than {_ITEMS:,} items")
        yield item


def _write_int(value: int) -> Any:
    # Decimal digits take quadratic time, and Python refuses more than 4300 of them.
    plain = int(value)
    return plain if -(1 << 63) < plain < 1 << 63 else ["int", hex(plain)]


def _write_float(value: float) -> Any:
    plain = float(value)
    return plain if math.isfinite(plain) else ["float", repr(plain)]


_SCALARS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, _write_int),
    (float, _write_float),
    (complex, lambda v: ["complex", repr(v.real), repr(v.imag)]),
    (bytes, lambda v: ["bytes", v.hex()]),
    (bytearray, lambda v: ["bytearray", v.hex()]),
    (range, lambda v: ["range", hex(v.start), hex(v.stop), hex(v.step)]),
)
_MANY: tuple[tuple[str, Any], ...] = (
    ("list", list),
    ("tuple", tuple),
    ("set", (set, type({}.keys()))),
    ("frozenset", frozenset),
    ("values", type({}.values())),
    ("set", type({}.items())),
)


def decode(value: Any) -> Any:
    """What `encode` made, as plain values. Raises ValueError for anything else."""
    if not isinstance(value, list):
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise ValueError("no value of this wire")
    if not value or not isinstance(value[0], str):
        raise ValueError("a value without its kind")
    tag, items = value[0], value[1:]
    read = _READERS.get(tag)
    if read is None:
        raise ValueError(f"a value of unknown kind {tag[:20]!r}")
    try:
        return read(items)
    except (TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no {tag}") from error


def _all(items: Iterable[Any]) -> list[Any]:
    return [decode(item) for item in items]


def _read_decimal(items: list[Any]) -> Any:
    from decimal import Decimal, InvalidOperation

    try:
        return Decimal(items[0])
    except InvalidOperation as error:
        raise ValueError("no Decimal") from error


def _read_fraction(items: list[Any]) -> Any:
    from fractions import Fraction

    try:
        return Fraction(int(items[0], 16), int(items[1], 16))
    except ZeroDivisionError as error:
        raise ValueError("no Fraction") from error


_READERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": _all,
    "values": _all,
    "tuple": lambda items: tuple(_all(items)),
    "set": lambda items: set(_all(items)),
    "frozenset": lambda items: frozenset(_all(items)),
    "dict": lambda items: {decode(k): decode(v) for k, v in items},
    "iterator": lambda items: iter(_all(items)),
    "int": lambda items: int(items[0], 16),
    "float": lambda items: float(items[0]),
    "complex": lambda items: complex(float(items[0]), float(items[1])),
    "bytes": lambda items: bytes.fromhex(items[0]),
    "bytearray": lambda items: bytearray.fromhex(items[0]),
    "range": lambda items: range(*(int(item, 16) for item in items)),
    "opaque": lambda items: Opaque(str(items[0])[:80]),
    "Decimal": _read_decimal,
    "Fraction": _read_fraction,
}
