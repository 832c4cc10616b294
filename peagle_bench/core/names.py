"""Looking a name up the way people type it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from peagle_bench.errors import UnknownName


def fold(name: str) -> str:
    """`P-EAGLE`, `p_eagle` and `peagle` are one name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def resolve(kind: str, name: str, known: Iterable[str], aliases: Mapping[str, str]) -> str:
    """The known name that `name` means. Raises UnknownName with up to three near matches."""
    table = {fold(k): k for k in known} | {fold(a): target for a, target in aliases.items()}
    folded = fold(name)
    if folded in table:
        return table[folded]
    close = difflib.get_close_matches(folded, table, n=3, cutoff=0.5)
    near = list(dict.fromkeys(table[c] for c in close))
    raise UnknownName(kind, name, sorted(set(table.values())), near)
