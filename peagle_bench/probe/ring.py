"""Step records in a memory-mapped file: written once, never flushed, lost by no signal.

What is written to the mapping belongs to the kernel's page cache at once, so that even a server
killed by SIGKILL leaves every step. Layout: a header of 64 bytes (magic, record size, count), then
records of RECORD.size bytes each.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

MAGIC = b"PBSTEP01"
HEADER = struct.Struct("<8sqq")
HEADER_BYTES = 64
RECORD = struct.Struct("<qq5i4xdddd")
CAPACITY = 1 << 18
"""Records preallocated (sparse); doubled when they are used up."""
NAN = float("nan")


@dataclass(slots=True)
class StepRecord:
    """One step of the target. Host times are CLOCK_MONOTONIC; NaN where a stage did not run."""

    start_ns: int
    end_ns: int
    num_reqs: int
    num_tokens: int
    """Tokens scheduled for all requests: prompt tokens, and 1 + drafts for each that decodes."""
    new_reqs: int
    """Requests scheduled for the first time: their prompts are in this step."""
    verified: int
    """Requests whose drafts this step verifies."""
    depth: int
    """K; 0 without speculation."""
    forward_s: float = NAN
    sample_s: float = NAN
    draft_s: float = NAN
    interval_s: float = NAN
    """From the start of the step before to the start of this one."""


class Ring:
    """The file of one worker process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._capacity = CAPACITY
        self._file.truncate(HEADER_BYTES + CAPACITY * RECORD.size)
        self._map = mmap.mmap(self._file.fileno(), 0)
        self._count = 0
        HEADER.pack_into(self._map, 0, MAGIC, RECORD.size, 0)

    def write(self, record: StepRecord) -> None:
        """Append; the count is raised last, so that a reader never sees half a record."""
        if self._count == self._capacity:
            self._capacity *= 2
            self._map.resize(HEADER_BYTES + self._capacity * RECORD.size)
        RECORD.pack_into(self._map, HEADER_BYTES + self._count * RECORD.size, *astuple(record))
        self._count += 1
        HEADER.pack_into(self._map, 0, MAGIC, RECORD.size, self._count)


def read_ring(path: Path) -> list[StepRecord]:
    """Every whole record. Raises ValueError for a file that is no ring."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            raise ValueError(f"{path} is no step file")
        magic, size, count = HEADER.unpack_from(head)
        if magic != MAGIC or size != RECORD.size:
            raise ValueError(f"{path} is no step file of this version")
        data = file.read(count * RECORD.size)
    return [StepRecord(*fields) for fields in RECORD.iter_unpack(data)]
