"""Secrets never reach the run folder: what looks like one is refused where it would be written.

A command, a server flag and a profile's environment all stand in manifest.json, command.json and
the report, so a secret belongs into the environment of peagle-bench itself, which servers inherit
and nothing writes down.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

_NAME = re.compile(r"token|secret|passw(or)?d|api[-_]?key|credential|authorization|^auth$", re.I)
# `max-tokens` and its kind hold counts, not secrets.
_COUNTS = re.compile(r"tokens|tokeni[sz]er|token[-_]?(id|len|limit|count)", re.I)
_GIVEN = (re.compile(r"([\w-]+)=[^\s\"']"), re.compile(r"--?([\w-]+)\s+[^\s-]"))
_VALUE = re.compile(r"bearer[\s-]+\S{6,}|://[^/\s:@]+:[^/\s@]+@", re.I)
SHORTEST = 8
"""A shorter value of a secret variable is not masked: it would mask half of any text."""


def is_secret_name(name: str) -> bool:
    """`HF_TOKEN`, `api-key` and their kind; not `max-tokens`."""
    return bool(_NAME.search(name)) and not _COUNTS.search(name)


def secret_in_names(names: Iterable[str]) -> str | None:
    """The first name that stands for a secret, or None."""
    return next((n for n in names if is_secret_name(n)), None)


def secret_in_command(command: str) -> str | None:
    """What in a command line looks like a secret with its value, or None."""
    for pattern in _GIVEN:
        for name in pattern.findall(command):
            if is_secret_name(name.lstrip("-")):
                return str(name)
    found = _VALUE.search(command)
    return found[0][:10] + "…" if found else None


def masked(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` with the values of secret variables of the environment replaced by `***`."""
    for name, value in (os.environ if environment is None else environment).items():
        if is_secret_name(name) and len(value) >= SHORTEST:
            text = text.replace(value, "***")
    return text
