"""A server process of ours: its own group, its own log, and never left behind.

Stopping ends the whole tree. Should the harness itself be killed, the kernel sends the server
SIGTERM (Linux), and the next harness to start ends whatever is still there: every server is listed
in the cache folder by pid *and* start time, so that a reused pid is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from peagle_bench.errors import ServerDied, ServerNotReady, WrongServer
from peagle_bench.resources import cache_root

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_CAUSE = re.compile(r"\b\w*(Error|Exception|Interrupt)\b: \S|out of memory|Killed", re.I)
_LOG_PREFIX = re.compile(r"^(\([^)]*\)\s*)?(ERROR \S+ \S+ \[[^\]]*\]\s*)?")
_NOT_A_CAUSE = re.compile(
    r"Engine core initialization failed|See root cause|Traceback|\b(WARNING|INFO|DEBUG) \d"
)


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How one server is started, and how it must answer."""

    label: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    """Laid over the harness's own environment."""
    host: str
    port: int
    served_name: str

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"


class Server:
    """A started server. Use `stop` whatever happened."""

    def __init__(self, spec: ServerSpec, log_path: Path) -> None:
        self.spec, self.log_path = spec, log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._entry: Path | None = None
        self.ready_s: float | None = None
        """Seconds from start to ready."""

    def start(self) -> None:
        """Start the process; its output goes to the log. Raises ServerDied when it cannot be."""
        self._started = time.monotonic()
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    self.spec.command,
                    env={**os.environ, **self.spec.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent if _LIBC else None,
                )
        except (OSError, ValueError) as error:
            raise ServerDied(f"cannot start {self.spec.command[0]}: {error}") from error
        self._entry = _list_server(self._process.pid, self.spec.port, self.log_path)

    def wait_ready(self, timeout_s: float, waiting: Callable[[float], None] | None = None) -> None:
        """Return once our own process serves our model.

        Raises ServerDied within a second of the process's end, ServerNotReady after timeout_s,
        WrongServer when the port answers for somebody else.
        """
        while True:
            self.check_alive()
            waited_s = time.monotonic() - self._started
            if self._healthy():
                self._check_model()
                self.ready_s = time.monotonic() - self._started
                return
            if waited_s > timeout_s:
                raise ServerNotReady(
                    f"{self.spec.label}: no /health within {timeout_s:g} s. The end of "
                    f"{self.log_path}:\n{log_tail(self.log_path)}"
                )
            if waiting is not None:
                waiting(waited_s)
            time.sleep(0.25)

    def check_alive(self) -> None:
        """Raises ServerDied, with the cause the log names, when the process has ended."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return
        cause = log_cause(self.log_path)
        raise ServerDied(
            f"{self.spec.label}: the server ended with "
            f"{'exit code ' + str(code) if code >= 0 else signal.Signals(-code).name}"
            f"{': ' + cause if cause else ''}. The end of {self.log_path}:\n"
            f"{log_tail(self.log_path)}"
        )

    def _healthy(self) -> bool:
        # A new HTTP client costs some 40 ms of CPU, which the starting server can use better:
        # only a port that listens is asked.
        if not _listens(self.spec.host, self.spec.port):
            return False
        with contextlib.suppress(httpx.HTTPError):
            url = f"{self.spec.base_url}/health"
            return httpx.get(url, timeout=5.0, trust_env=False).status_code == 200
        return False

    def _check_model(self) -> None:
        ids = served_models(self.spec.base_url)
        self.check_alive()
        if self.spec.served_name not in ids:
            raise WrongServer(
                f"{self.spec.label}: {self.spec.base_url} serves {', '.join(ids) or 'nothing'}, "
                f"not {self.spec.served_name}: another server holds the port"
            )

    def stop(self, grace_s: float = 20.0) -> None:
        """SIGTERM, wait, SIGKILL: afterwards no process of the tree lives and the port is free."""
        process = self._process
        if process is None:
            return
        end_tree(process.pid, grace_s, reap=process)
        _wait_port_free(self.spec.host, self.spec.port, 10.0)
        if self._entry is not None:
            self._entry.unlink(missing_ok=True)
        self._process = None


def served_models(base_url: str) -> list[str]:
    """Ids at /v1/models. Raises WrongServer when there is no such list."""
    try:
        response = httpx.get(f"{base_url}/v1/models", timeout=10.0, trust_env=False)
        return [str(entry["id"]) for entry in response.json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise WrongServer(f"{base_url}/v1/models does not list models: {error!r}") from error


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def log_tail(path: Path, lines: int = 15) -> str:
    """The log's last lines, each cut at 300 characters."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 65536))
            text = log.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(line[:300] for line in text.splitlines()[-lines:])


def log_cause(path: Path) -> str | None:
    """The first line that names an error and is not merely about another one."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return None
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if _CAUSE.search(line) and not _NOT_A_CAUSE.search(line):
            cause = _LOG_PREFIX.sub("", line).strip()
            if "validation error" in cause:  # pydantic says what is wrong on the lines below
                cause = " ".join([cause, *(rest.strip() for rest in lines[at + 1 : at + 3])])
            return cause[:400]
    return None


def end_tree(pid: int, grace_s: float, reap: subprocess.Popen[bytes] | None = None) -> None:
    """End a process, its children and its group. No error when they are gone already."""
    tree = _tree(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if reap is not None:
            reap.poll()
        tree |= _tree(pid)
        if not any(_lives(p) for p in tree):
            break
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for process in tree:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(list(tree), timeout=5.0)
    if reap is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            reap.wait(5.0)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _tree(pid: int) -> set[psutil.Process]:
    """The process, its descendants, and members of its group whose leader has gone."""
    found: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        found |= {leader, *leader.children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == pid:
                found.add(process)
    return found


def _die_with_parent() -> None:
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_port_free(host: str, port: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while _listens(host, port) and time.monotonic() < deadline:
        time.sleep(0.1)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def _created(pid: int) -> float | None:
    try:
        created: float = psutil.Process(pid).create_time()
        return created
    except psutil.Error:
        return None


def _list_server(pid: int, port: int, log_path: Path) -> Path | None:
    """Write this server's entry; None when the cache folder cannot be written."""
    folder = cache_root() / "servers"
    entry = folder / f"{pid}.json"
    row = {
        "pid": pid,
        "created": _created(pid),
        "owner": os.getpid(),
        "owner_created": _created(os.getpid()),
        "port": port,
        "log": str(log_path),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = entry.with_suffix(".aside")
        aside.write_text(json.dumps(row))
        aside.replace(entry)
    except OSError:
        return None
    return entry


def end_orphans() -> list[str]:
    """End servers whose harness has died; a line about each that was still there.

    A process is only ever touched when its pid and start time are those of the entry, or when it
    belongs to the group of a listed leader that has gone.
    """
    ended = []
    for entry in sorted((cache_root() / "servers").glob("*.json")):
        try:
            row = json.loads(entry.read_text())
            pid, created = int(row["pid"]), row["created"]
            owner, owner_created = int(row["owner"]), row["owner_created"]
        except (OSError, ValueError, KeyError, TypeError):
            entry.unlink(missing_ok=True)
            continue
        if owner_created is not None and _created(owner) == owner_created:
            continue
        now = _created(pid)
        if (now is None and _tree(pid)) or (now is not None and now == created):
            end_tree(pid, 10.0)
            ended.append(f"ended server {pid} that an earlier run had left on port {row['port']}")
        entry.unlink(missing_ok=True)
    return ended
