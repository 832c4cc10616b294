"""What tests share: a byte-exact server, records made by hand, the CLI as a process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from peagle_bench.core.record import (
    CellData,
    ClientStats,
    CounterDelta,
    RequestRecord,
    SpecMetrics,
)
from peagle_bench.resources import cache_root
from tests.standin_hub import StandInHub

MS = 1_000_000
REAL_CACHE = cache_root()
"""Where `make setup` prepared the embedded target, whatever a test sets."""
# The hub's libraries read these when they are imported: every test of a process shares one hub.
HUB = StandInHub()
_HUB_HOME = tempfile.mkdtemp(prefix="peagle-bench-hf-")
os.environ |= {
    "HF_ENDPOINT": HUB.url,
    "HF_HOME": _HUB_HOME,
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "NO_PROXY": "127.0.0.1",
}
for _name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
    os.environ.pop(_name, None)


def pytest_sessionfinish() -> None:
    HUB.stop()
    shutil.rmtree(_HUB_HOME, ignore_errors=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, for this process and those it starts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PEAGLE_BENCH_CACHE", str(folder))
    return folder


class Cli:
    """`peagle-bench` as a user runs it: a process in a folder of its own."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd

    def __call__(
        self, *words: str, timeout: float = 240, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "peagle_bench", *words],
            cwd=self.cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "peagle_bench", *words],
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell's background job ignores Ctrl-C, and its children with it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


@pytest.fixture
def cli(tmp_path: Path, cache: Path) -> Cli:
    return Cli(tmp_path)


class Invoked(NamedTuple):
    """What a command printed and how it ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def invoke(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Invoked]]:
    """The CLI inside this process: a tenth of the time, for commands that start no server."""
    from typer.testing import CliRunner

    from peagle_bench.cli import app

    monkeypatch.chdir(tmp_path)
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def run(*words: str) -> Invoked:
        done = CliRunner().invoke(app, list(words), prog_name="peagle-bench")
        return Invoked(done.exit_code, done.stdout, done.stderr)

    yield run
    for kind, handler in before.items():
        signal.signal(kind, handler)


Script = Callable[[int], Sequence[tuple[float, bytes | None]]]
"""By number of the request: what to write, each part after a delay in seconds; None resets."""


class ByteServer:
    """Answers each request with exactly the bytes of a script, from a thread of its own."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.in_flight = self.peak = 0
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048)
        )
        self.port: int = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                length = next(
                    (
                        int(line.split(":")[1])
                        for line in lines
                        if line.startswith("content-length")
                    ),
                    0,
                )
                self.requests.append(head + await reader.readexactly(length))
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                for delay_s, data in self._script(len(self.requests) - 1):
                    await asyncio.sleep(delay_s)
                    if data is None:
                        writer.transport.abort()
                        return
                    if data == b"CLOSE":
                        writer.close()
                        return
                    writer.write(data)
                    await writer.drain()
                self.in_flight -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@pytest.fixture
def serve_bytes() -> Iterator[Callable[[Script], ByteServer]]:
    started: list[ByteServer] = []

    def start(script: Script) -> ByteServer:
        server = ByteServer(script)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def framed(*pieces: bytes) -> bytes:
    """HTTP chunks, one per piece."""
    return b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces)


def record(
    index: int = 0,
    *,
    chunks: Sequence[tuple[float, int]] = ((100, 1), (120, 1), (140, 1)),
    sent_ms: float = 0,
    end_ms: float | None = None,
    prompt_id: str | None = None,
    **fields: object,
) -> RequestRecord:
    """A good record: chunks as (arrival in ms, tokens)."""
    total = sum(n for _, n in chunks)
    values: dict[str, object] = {
        "index": index,
        "prompt_id": prompt_id or f"p{index}",
        "category": "code",
        "scheduled_ns": int(sent_ms * MS),
        "sent_ns": int(sent_ms * MS),
        "end_ns": int((chunks[-1][0] if end_ms is None else end_ms) * MS),
        "chunk_ns": tuple(int(t * MS) for t, _ in chunks),
        "chunk_tokens": tuple(n for _, n in chunks),
        "prompt_tokens": 10,
        "completion_tokens": total,
        "finish_reason": "length",
        "model": "m",
        "status": 200,
        "token_ids": tuple(range(total)),
        "num_token_ids": total,
        "reads": len(chunks),
    }
    return RequestRecord(**{**values, **fields})  # type: ignore[arg-type]


def spec(drafts: int, accepted: int, depth: int) -> SpecMetrics:
    return SpecMetrics(drafts, drafts * depth, accepted)


def client_stats(**fields: object) -> ClientStats:
    values: dict[str, object] = {
        "clock": "kernel",
        "clock_drift_ns": 0,
        "lag_p50_ns": 10_000,
        "lag_p99_ns": 50_000,
        "turnaround_p99_ns": 20_000,
        "cpu_share": 0.05,
        "peak_in_flight": 1,
        "reads": 100,
        "merged_reads": 0,
    }
    return ClientStats(**{**values, **fields})  # type: ignore[arg-type]


def cell_data(
    records: Sequence[RequestRecord],
    *,
    delta: CounterDelta | None = None,
    concurrency: int = 1,
    depth: int | None = None,
    **client: object,
) -> CellData:
    """A cell whose counters agree with its records unless a delta is given."""
    tokens = sum(r.completion_tokens or 0 for r in records)
    if delta is None:
        delta = CounterDelta(generation_tokens=tokens, requests_finished=len(records))
    return CellData(
        records=tuple(records),
        delta=delta,
        client=client_stats(**{"peak_in_flight": concurrency, **client}),
        concurrency=concurrency,
        depth=depth,
    )
