"""Server-sent events, cut anywhere.

Follows the WHATWG event-stream grammar: LF, CR or CRLF line ends, comment lines, fields other
than `data`, several `data` lines joined by LF, an optional space after the colon, a byte-order
mark at the start. An event that is not closed by an empty line is never dispatched.
"""

from __future__ import annotations


class EventDecoder:
    """Bytes in, complete events' data out; holds what is not complete yet."""

    __slots__ = ("_buffer", "_data", "_skip_lf", "_started")

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[bytes] = []
        self._skip_lf = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that `data` completes, in order."""
        if not data:
            return []
        if self._skip_lf and data[:1] == b"\n":
            data = data[1:]
        self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += data
        if not self._started:
            if len(self._buffer) < 3 and b"\xef\xbb\xbf".startswith(self._buffer):
                return []
            self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf")
            self._started = True
        *lines, self._buffer = self._buffer.split(b"\n")
        events = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value[:1] == b" " else value)
            elif line == b"data":
                self._data.append(b"")
        return events
