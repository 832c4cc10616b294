"""Connections that stamp what arrives, and nothing else.

While a cell is driven a read is appended as (kernel stamp, monotonic time, bytes) and the only
look at the bytes is whether the response has ended. Decoding comes after the cell, so that it
cannot delay the next read: one event costs what one `recvmsg` costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

# Linux; Python names neither. The kernel stamps a segment when it arrives, in CLOCK_REALTIME.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
READ_SIZE = 65536  # larger reads cost more per event, not less

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.I)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.I)
_CLOSE = re.compile(rb"\r\nconnection:[^\r\n]*close", re.I)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go."""

    base_url: str
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request; never stored (they may hold a key)."""

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        parts = urlsplit(self.base_url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def tls(self) -> bool:
        return urlsplit(self.base_url).scheme == "https"

    def post(self, path: str, body: bytes) -> bytes:
        """The bytes of one HTTP/1.1 POST of a JSON body."""
        prefix = urlsplit(self.base_url).path.rstrip("/")
        lines = [
            f"POST {prefix}{path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            f"Content-Length: {len(body)}",
            *(f"{k}: {v}" for k, v in self.headers),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(slots=True)
class Exchange:
    """One request's bytes as they came. Stamps are CLOCK_MONOTONIC nanoseconds."""

    sent_ns: int = 0
    end_ns: int = 0
    reads: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    """(ancillary timespec or b"", monotonic ns when read, bytes)"""
    error: str | None = None
    timed_out: bool = False

    def stamps(self, wall_minus_mono_ns: int) -> list[int]:
        """Arrival of each read: the kernel's stamp where there is one, else the time of reading.

        Clipped to be non-decreasing and never later than the read itself.
        """
        last, out = self.sent_ns, []
        for timespec, read_ns, _ in self.reads:
            at = read_ns
            if timespec:
                seconds, nanos = _TIMESPEC.unpack(timespec)
                at = min(seconds * 1_000_000_000 + nanos - wall_minus_mono_ns, read_ns)
            last = max(last, at)
            out.append(last)
        return out


class Connection(Protocol):
    """One HTTP/1.1 connection that carries one exchange at a time."""

    reusable: bool
    served: int
    """Exchanges carried so far."""
    current: Exchange | None

    async def exchange(self, payload: bytes) -> Exchange: ...

    def overdue(self, now_ns: int, first_byte_ns: int, idle_ns: int) -> str | None: ...

    def time_out(self, why: str) -> None: ...

    def close(self) -> None: ...


class _Framing:
    """Finds a response's end from the head and the last bytes of each read."""

    __slots__ = ("_chunked", "_head", "_left", "_tail", "close")

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._chunked = False
        self._left: int | None = None
        self._tail = b""
        self.close = False

    def ended(self, data: bytes) -> bool:
        """True when `data` completes the response."""
        if self._head is not None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return False
            head, data = self._head[: end + 2], self._head[end + 4 :]
            self._head = None
            self.close = bool(_CLOSE.search(head))
            self._chunked = bool(_CHUNKED.search(head))
            length = _LENGTH.search(head)
            if not self._chunked and length:
                self._left = int(length[1])
            # The body of an empty chunked response starts with its last chunk.
            self._tail = b"\r\n"
        if self._chunked:
            self._tail = (self._tail + data[-7:])[-7:]
            return self._tail == _LAST_CHUNK
        if self._left is not None:
            self._left -= len(data)
            return self._left <= 0
        return False  # neither: the response ends with the connection


class SocketConnection:
    """A plain TCP connection on our own non-blocking socket, stamped by the kernel if it can."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._loop = sock, loop
        self.current: Exchange | None = None
        self._framing = _Framing()
        self._done: asyncio.Future[None] | None = None
        self.reusable = True
        self.served = 0

    @classmethod
    async def open(cls, endpoint: Endpoint) -> SocketConnection:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        failure: OSError = OSError(f"{endpoint.host} has no address")
        for family, kind, proto, _, address in infos:
            sock = socket.socket(family, kind, proto)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failure = error
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Not Linux: the time of reading is used, and the record says so.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            return cls(sock, loop)
        raise failure

    async def exchange(self, payload: bytes) -> Exchange:
        exchange = self.current = Exchange()
        self._framing = _Framing()
        self._done = self._loop.create_future()
        exchange.sent_ns = time.monotonic_ns()
        try:
            sent = self._sock.send(payload)
            if sent < len(payload):
                await self._loop.sock_sendall(self._sock, payload[sent:])
        except BlockingIOError:
            await self._loop.sock_sendall(self._sock, payload)
        except OSError as error:
            self._fail(f"send failed: {error}")
        if not self._done.done():
            self._loop.add_reader(self._sock.fileno(), self._readable)
            try:
                await self._done
            except asyncio.CancelledError:
                self._loop.remove_reader(self._sock.fileno())
                self.close()
                raise
        exchange.end_ns = time.monotonic_ns()
        self.current = None
        self.served += 1
        return exchange

    def _readable(self) -> None:
        exchange = self.current
        if exchange is None:
            return
        try:
            data, ancillary, _, _ = self._sock.recvmsg(READ_SIZE, 64)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(f"connection lost: {error}")
            return
        now = time.monotonic_ns()
        if not data:
            self.reusable = False
            self._finish()
            return
        exchange.reads.append((ancillary[0][2] if ancillary else b"", now, data))
        if self._framing.ended(data):
            self.reusable = self.reusable and not self._framing.close
            self._finish()

    def _finish(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, why: str) -> None:
        if self.current is not None and self.current.error is None:
            self.current.error = why
        self.reusable = False
        self._finish()

    def overdue(self, now_ns: int, first_byte_ns: int, idle_ns: int) -> str | None:
        return _overdue(self.current, now_ns, first_byte_ns, idle_ns)

    def time_out(self, why: str) -> None:
        if self.current is not None:
            self.current.timed_out = True
        self._fail(why)

    def close(self) -> None:
        self.reusable = False
        self._sock.close()


class StreamConnection:
    """A TLS connection through asyncio's own transport: stamped when the bytes were read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.current: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self.reusable = True
        self.served = 0

    @classmethod
    async def open(cls, endpoint: Endpoint) -> StreamConnection:
        context = ssl.create_default_context()
        return cls(*await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context))

    async def exchange(self, payload: bytes) -> Exchange:
        exchange = self.current = Exchange()
        exchange.sent_ns = time.monotonic_ns()
        self._task = asyncio.ensure_future(self._receive(exchange, payload))
        try:
            await self._task
        except asyncio.CancelledError:
            if exchange.error is None:  # the driver's cancellation, not a time-out of ours
                self._task.cancel()
                self.close()
                raise
        except OSError as error:
            exchange.error = f"connection lost: {error}"
            self.reusable = False
        exchange.end_ns = time.monotonic_ns()
        self.current = None
        self.served += 1
        return exchange

    async def _receive(self, exchange: Exchange, payload: bytes) -> None:
        self._writer.write(payload)
        await self._writer.drain()
        framing = _Framing()
        while True:
            data = await self._reader.read(READ_SIZE)
            now = time.monotonic_ns()
            if not data:
                self.reusable = False
                return
            exchange.reads.append((b"", now, data))
            if framing.ended(data):
                self.reusable = self.reusable and not framing.close
                return

    def overdue(self, now_ns: int, first_byte_ns: int, idle_ns: int) -> str | None:
        return _overdue(self.current, now_ns, first_byte_ns, idle_ns)

    def time_out(self, why: str) -> None:
        if self.current is not None and self._task is not None:
            self.current.error = why
            self.current.timed_out = True
            self.reusable = False
            self._task.cancel()

    def close(self) -> None:
        self.reusable = False
        self._writer.close()


def _overdue(
    exchange: Exchange | None, now_ns: int, first_byte_ns: int, idle_ns: int
) -> str | None:
    """Why this exchange has waited too long, or None."""
    if exchange is None:
        return None
    if not exchange.reads:
        if now_ns - exchange.sent_ns > first_byte_ns:
            return f"no response within {first_byte_ns / 1e9:g} s"
    elif now_ns - exchange.reads[-1][1] > idle_ns:
        return f"nothing received for {idle_ns / 1e9:g} s"
    return None


async def connect(endpoint: Endpoint, timeout_s: float = 10.0) -> Connection:
    """A connection ready to carry exchanges. Raises OSError or TimeoutError."""
    kind = StreamConnection if endpoint.tls else SocketConnection
    return await asyncio.wait_for(kind.open(endpoint), timeout_s)


def wall_minus_mono_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC now, in ns: the tightest of several readings."""
    best: tuple[int, int] | None = None
    for _ in range(16):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, wall - (before + after) // 2)
    assert best is not None
    return best[1]
