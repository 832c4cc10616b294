"""What the model said in a run's conversations, for the cells that replay them.

A conversation is spoken once, by the first cell of its suite; every later cell sends the same
replies back, so that all methods see the same prompts. For public suites, or with --keep-text, the
replies lie in the run folder. Those of private traffic stay in the cache folder of whoever runs it,
readable by them alone, and are removed once the run is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from peagle_bench.core.record import RequestRecord
from peagle_bench.core.suite import Prompt
from peagle_bench.errors import FolderUnusable
from peagle_bench.resources import cache_root
from peagle_bench.store import RunFolder

Replies = Mapping[str, tuple[str, ...]]
"""By prompt id: the reply to each turn but the last."""


class Conversations:
    """Replies of one suite in one run."""

    def __init__(self, folder: RunFolder, suite: str, *, private: bool) -> None:
        self._path = folder.path / "conversations" / f"{suite}.json"
        self._private = private
        if private:
            name = f"{folder.manifest()['provenance']['run_id']}-{suite}.json"
            self._path = cache_root() / "conversations" / name

    def read(self, prompts: Sequence[Prompt]) -> Replies | None:
        """What was kept; None when nothing was, it cannot be read, or a prompt lacks a reply."""
        try:
            held = json.loads(self._path.read_text(encoding="utf-8"))
            replies = {str(k): tuple(map(str, v)) for k, v in held.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return None
        whole = all(len(replies.get(p.prompt_id, ())) == p.num_turns - 1 for p in prompts)
        return replies if whole else None

    def write(self, replies: Replies) -> None:
        """Replaced as a whole. Raises FolderUnusable."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            aside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            aside.touch(0o600)
            aside.write_text(json.dumps(dict(replies), ensure_ascii=False), encoding="utf-8")
            aside.replace(self._path)
        except OSError as error:
            raise FolderUnusable(f"cannot write {self._path}: {error.strerror or error}") from error

    def forget(self) -> None:
        """Remove private replies: the run is whole."""
        if self._private:
            self._path.unlink(missing_ok=True)


def spoken(prompts: Sequence[Prompt], records: Sequence[RequestRecord]) -> Replies | None:
    """The replies that a driven cell's conversations brought; None when any turn failed."""
    if not all(r.ok for r in records):
        return None
    said: dict[str, list[str]] = {}
    for record in sorted(records, key=lambda r: (r.prompt_id, r.turn)):
        said.setdefault(record.prompt_id, []).append(record.text)
    return {p.prompt_id: tuple(said[p.prompt_id][: p.num_turns - 1]) for p in prompts}


def digest_of(replies: Replies) -> str:
    """sha256 over the replies by prompt id."""
    rows = sorted((k, list(v)) for k, v in replies.items())
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
