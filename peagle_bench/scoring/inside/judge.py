"""Process 1 of the sandbox: makes the candidate's process, runs the test, and says how it ended.

The test's asserts run here, the candidate's code only in the other process: it has neither the
test, nor the verdict's pipe, nor memory shared with either, and can do nothing but return values.

The job is read only after the candidate's process was split off, so that its memory never held it.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from types import CodeType
from typing import Any, NoReturn

from peagle_bench.scoring.inside import isolation
from peagle_bench.scoring.inside.runner import serve
from peagle_bench.scoring.inside.wire import Channel, ChannelClosed, decode, encode

NOT_A_TEST = "the problem's test cannot be run: "
_WHY_CHARACTERS = 160


class _Ended(BaseException):
    """The sample has failed and the test must not go on; no `except Exception` catches it."""


def main() -> NoReturn:
    config = json.loads(sys.argv[1])
    limits: isolation.ProcessLimits = config["limits"]
    if config["kind"] == "namespaces":
        isolation.enter_namespaces(config["view"], config["parent"])
    elif config["kind"] == "bwrap":
        isolation.die_with_parent()
    else:
        isolation.die_with_parent(config["parent"])
    # What is still to be imported lies where the sandbox shows it.
    sys.path[:] = [p for p in sys.path if p != config["package_root"]] + config["packages"]
    # Python's own handler would let the candidate end process 1.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ours, theirs = socket.socketpair()
    candidate = os.fork()
    if candidate == 0:
        _become_candidate(ours, theirs, config)
    theirs.close()
    # Its CPU is bounded by the wall limit, and by that alone: process 1 ended by a limit of its own
    # would look like a sandbox that failed.
    isolation.limit({**limits, "cpu_s": 100_000})
    # It stays the user it is: as another one, bubblewrap's outer process could not end it.
    isolation.drop_privileges(None)
    isolation.hide_memory()
    _Judge(Channel(ours.fileno()), candidate, limits["cpu_s"]).run()
    os._exit(0)


def _become_candidate(
    ours: socket.socket, theirs: socket.socket, config: dict[str, Any]
) -> NoReturn:
    try:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, 4096)
        isolation.drop_privileges(config["uid"])
        isolation.die_with_parent()
        isolation.limit(config["limits"])
        # The unsafe kind takes what it can get; a safe one is whole or does not start.
        lenient = (OSError,) if config["kind"] == "unsafe" else ()
        with contextlib.suppress(*lenient):
            isolation.refuse_system_calls()
    except Exception as error:
        Channel(theirs.fileno()).send({"setup": f"{type(error).__name__}: {error}"})
        os._exit(1)
    serve(theirs.fileno())


class _Judge:
    """One sample's trial."""

    def __init__(self, channel: Channel, candidate: int, cpu_s: int) -> None:
        self._channel, self._candidate, self._cpu_s = channel, candidate, cpu_s
        self._failure: str | None = None
        """Why it failed beyond repair; a test that swallows it does not undo it."""
        self._ready_s = time.monotonic()
        self._out = os.dup(1)
        self._job = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(nothing, fd)

    def run(self) -> None:
        try:
            first = self._channel.receive()
        except ChannelClosed:
            self._tell("infra_error", "the candidate's process did not start")
            return
        if "setup" in first:
            self._tell("infra_error", str(first["setup"]))
            return
        with os.fdopen(self._job, encoding="utf-8") as stream:
            job = json.load(stream)
        self._write({"event": "ready"})
        self._ready_s = time.monotonic()
        outcome, why = self._try(job)
        self._tell(outcome, why)

    def _try(self, job: dict[str, str]) -> tuple[str, str]:
        try:
            check = self._check(job)
        except BaseException as error:
            return "infra_error", f"{NOT_A_TEST}{_why(error)}"
        try:
            self._answer({"program": job["program"], "entry_point": job["entry_point"]})
            check(self._call)
        except _Ended:
            pass
        except BaseException as error:
            self._failure = self._failure or _why(error)
        return ("failed", self._failure) if self._failure else ("passed", "")

    def _check(self, job: dict[str, str]) -> Any:
        """The test's `check`, among the helpers that the prompt defines."""
        # Its prints must not reach the errors that are kept for a sandbox that fails.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
        space: dict[str, Any] = {"__name__": "problem"}
        exec(_compiled(job["prelude"], "<prompt>"), space)
        # One test compares the function with itself, by its name.
        space[job["entry_point"]] = self._call
        exec(_compiled(job["test"], "<test>"), space)
        return space["check"]

    def _call(self, *args: Any, **named: Any) -> Any:
        """The candidate's function, from a distance."""
        encoded = {name: encode(arg) for name, arg in named.items()}
        answer = self._answer({"args": [encode(arg) for arg in args], "named": encoded})
        try:
            return decode(answer)
        except (ValueError, RecursionError):
            self._end("answered with what is no value")

    def _answer(self, message: dict[str, Any]) -> Any:
        """The answer's value. Raises what the candidate raised, or _Ended."""
        if self._failure:
            raise _Ended
        try:
            self._channel.send(message)
            answer = self._channel.receive()
        except ChannelClosed:
            self._end(self._how_it_ended())
        raised = answer.get("raised")
        if raised is None:
            return answer.get("value")
        if not isinstance(raised, list) or len(raised) != 2:
            self._end("answered with what is no answer")
        kind, text = str(raised[0]), str(raised[1])
        error = _builtin_error(kind, text)
        if error is None or "program" in message:
            self._end(_short(kind, text))
        raise error

    def _end(self, why: str) -> NoReturn:
        self._failure = self._failure or why
        raise _Ended

    def _how_it_ended(self) -> str:
        """Why the candidate's process no longer answers."""
        for _ in range(50):
            pid, status, usage = os.wait4(self._candidate, os.WNOHANG)
            if pid:
                return _of_status(status, usage, self._cpu_s)
            time.sleep(0.01)
        return "closed its channel before the test ended"

    def _tell(self, outcome: str, why: str) -> None:
        seconds = time.monotonic() - self._ready_s
        self._write({"event": "verdict", "outcome": outcome, "why": why, "seconds": seconds})

    def _write(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._out, json.dumps(event).encode() + b"\n")


def _compiled(source: str, name: str) -> CodeType:
    """Without this module's own `from __future__`."""
    return compile(source, name, "exec", dont_inherit=True)


def _of_status(status: int, usage: resource.struct_rusage, cpu_s: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    spent_s = usage.ru_utime + usage.ru_stime
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and spent_s >= cpu_s):
        return f"timeout: {cpu_s} s of CPU"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exited with code {code} before the test ended"


def _builtin_error(kind: str, text: str) -> Exception | None:
    """The exception of that name, so that a test may expect it; None if there is none such."""
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(text)
        except TypeError:  # UnicodeDecodeError wants more
            return None
    return None


def _why(error: BaseException) -> str:
    return _short(type(error).__name__, str(error))


def _short(kind: str, text: str) -> str:
    """One printable line; the word before the colon says what kind of failure it was."""
    kind = {"AssertionError": "assertion", "MemoryError": "memory"}.get(kind, kind)
    line = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(line.split())[:_WHY_CHARACTERS]
    kind = "".join(c for c in kind[:60] if c.isprintable())
    return f"{kind}: {line}" if line else kind
