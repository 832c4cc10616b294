"""The candidate's process: runs the program, answers calls of its function, and knows no test."""

from __future__ import annotations

import os
import sys
import types
from typing import Any, NoReturn

from peagle_bench.scoring.inside.wire import Channel, ChannelClosed, decode, encode

_MODULE = "candidate"


def serve(fd: int) -> NoReturn:
    """Load the program that is sent, then call its function as often as asked; never returns."""
    channel = Channel(fd)
    try:
        channel.send({"ready": True})
        job = channel.receive()
        function = _answered(channel, lambda: _load(job["program"], job["entry_point"]))
        while True:
            message = channel.receive()
            args = [decode(arg) for arg in message["args"]]
            named = {name: decode(arg) for name, arg in message["named"].items()}
            if function is not None:
                _answered(channel, lambda a=args, n=named: function(*a, **n), with_value=True)
    except ChannelClosed:
        pass
    finally:
        os._exit(0)


def _answered(channel: Channel, work: Any, *, with_value: bool = False) -> Any:
    """What `work` gives; the judge is told, whatever happens."""
    value = None
    try:
        value = work()
        answer: dict[str, Any] = {"value": encode(value) if with_value else None}
    except BaseException as error:
        answer = _raised(error)
    try:
        channel.send(answer)
    except ValueError as error:
        channel.send(_raised(error))
    return value


def _raised(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    return {"raised": [type(error).__name__, text]}


def _load(program: str, entry_point: str) -> Any:
    """The function of that name. Raises whatever the program raises, and NameError without it."""
    # A module of its own name: `if __name__ == "__main__":` is not run, dataclasses work.
    module = types.ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    sys.argv = [_MODULE]
    # Without this module's own `from __future__`: annotations are evaluated, as everywhere.
    exec(compile(program, "<candidate>", "exec", dont_inherit=True), module.__dict__)
    if entry_point not in module.__dict__:
        raise NameError(f"no function {entry_point}")
    return module.__dict__[entry_point]
