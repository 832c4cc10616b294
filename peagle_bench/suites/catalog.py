"""Suites by name, path or hub reference; their prompts, filtered and drawn."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from peagle_bench.core.names import resolve
from peagle_bench.core.result import Finding
from peagle_bench.core.suite import Prompt, Suite
from peagle_bench.errors import ConfigError, UnknownName
from peagle_bench.resources import data_root
from peagle_bench.suites.files import ENDINGS
from peagle_bench.suites.hub import suite_of_reference
from peagle_bench.suites.jsonl import suite_of_path
from peagle_bench.suites.loaded import Loaded, LoadOptions, unique_ids
from peagle_bench.yamlfile import read_mapping, validated

ALIASES = {"speed-coding": "speed-code", "speed-bench": "speed", "mtbench": "mt-bench"}


def _folder() -> Path:
    return data_root() / "suites"


@cache
def _families() -> dict[str, tuple[Path, dict[str, Any]]]:
    """By suite name: the file it stands in and its fields, a variant's laid over its family's."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(_folder().glob("*.yaml")):
        for fields in _suites_in(path):
            found[str(fields.get("name"))] = (path, fields)
    return found


def _suites_in(path: Path) -> list[dict[str, Any]]:
    held = read_mapping(path)
    variants = held.pop("variants", [])
    if not isinstance(variants, list) or not all(isinstance(v, dict) for v in variants):
        raise ConfigError(f"{path}: variants is no list of mappings")
    return [held, *(_over(held, v) for v in variants)]


def _over(base: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` over `base`, mappings laid over mappings."""
    out = dict(base)
    for key, value in fields.items():
        held = out.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        out[key] = {**held, **value} if both and held is not None else value
    return out


def suite_names() -> list[str]:
    return sorted(_families())


def suite_named(name: str) -> Suite:
    """A shipped suite. Raises UnknownName with near matches."""
    families = _families()
    path, fields = families[resolve("suite", name, families, ALIASES)]
    return _suite(path, fields)


def find_suite(reference: str) -> Suite:
    """A shipped suite's name, a path (data or a suite's YAML), or `hub:owner/name,…`.

    Raises UnknownName or ConfigError.
    """
    if reference.startswith("hub:"):
        return suite_of_reference(reference)
    path = Path(reference).expanduser()
    if not _looks_like_path(reference):
        try:
            return suite_named(reference)
        except UnknownName as error:
            if not path.exists():
                raise ConfigError(
                    f"{error} A suite may also be a path (a name with a / or an ending), or "
                    "hub:owner/name,split=…,prompt=COLUMN."
                ) from error
    if path.suffix in (".yaml", ".yml"):
        return _own_yaml(path)
    if not path.exists():
        raise ConfigError(f"--suite {reference}: there is no such file or folder")
    return suite_of_path(path)


def canonical(reference: str) -> str:
    """A shipped suite's proper name; a path or hub reference as it was given.

    Raises UnknownName or ConfigError for what is neither.
    """
    suite = find_suite(reference)
    shipped = not reference.startswith("hub:") and not _looks_like_path(reference)
    return suite.name if shipped and suite.name in _families() else reference


def _looks_like_path(reference: str) -> bool:
    return "/" in reference or reference.lower().endswith((*ENDINGS, ".yaml", ".yml"))


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """Every prompt of the suite with a name of its own.

    Raises SuiteUnavailable, or ConfigError for a file of one's own that cannot be read.
    """
    loaded: Loaded = _loader(suite).load(suite, options)
    stamps = loaded.stamps
    if suite.stamp:
        stamps = (Finding(code="stamp", text=suite.stamp), *stamps)
    return Loaded(unique_ids(loaded.prompts), stamps, loaded.facts)


def prepare(suite: Suite, path: Path | None, options: LoadOptions) -> str:
    """Fetch or take over what the suite needs; one or more lines about it."""
    loader = _loader(suite)
    if not hasattr(loader, "prepare"):
        if path is not None:
            raise ConfigError(f"{suite.name} needs nothing prepared: it is in this package")
        return f"{suite.name} needs nothing prepared"
    told: str = loader.prepare(suite, path, options)
    return told


def is_here(suite: Suite) -> bool:
    """The suite's prompts are on this machine, as far as can be told without asking the hub."""
    loader = _loader(suite)
    return not hasattr(loader, "is_here") or bool(loader.is_here(suite))


def filtered(
    suite: Suite, prompts: Sequence[Prompt], categories: Iterable[str], tier: str | None
) -> list[Prompt]:
    """Prompts of these categories and this tier. Raises ConfigError listing what there is."""
    counts = Counter(p.category for p in prompts)
    have = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items()))
    known = {c.lower() for c in counts}
    unknown = [c for c in categories if c.lower() not in known]
    if unknown:
        raise ConfigError(
            f"--category: {suite.name} has none called {', '.join(unknown)}; it has {have}"
        )
    wanted = {c.lower() for c in categories}
    if tier is not None and tier not in suite.tiers:
        tiers = f"has the tiers {', '.join(suite.tiers)}" if suite.tiers else "has no tiers"
        raise ConfigError(f"--tier {tier}: {suite.name} {tiers}")
    chosen = [
        p
        for p in prompts
        if (not wanted or p.category.lower() in wanted) and tier in (None, p.category)
    ]
    if not chosen:
        raise ConfigError(f"no prompt of {suite.name} is left; its categories are {have}")
    return chosen


def drawn(
    prompts: Sequence[Prompt], limit: int | None, seed: int, oversample: bool
) -> tuple[Prompt, ...]:
    """`limit` prompts drawn without replacement by `seed`, in their own order; all for None.

    With `oversample`, and fewer prompts than `limit`, all of them again and again, each copy
    under a name of its own.
    """
    if limit is None or limit == len(prompts) or (limit > len(prompts) and not oversample):
        return tuple(prompts)
    if limit > len(prompts):
        copies = [prompts[i % len(prompts)] for i in range(limit)]
        return tuple(unique_ids(copies))
    chosen = sorted(random.Random(seed).sample(range(len(prompts)), limit))
    return tuple(prompts[i] for i in chosen)


def _loader(suite: Suite) -> Any:
    try:
        return importlib.import_module(f"peagle_bench.suites.{suite.loader}")
    except ImportError as error:
        raise ConfigError(f"suite {suite.name}: there is no loader {suite.loader!r}") from error


def _suite(path: Path, fields: Mapping[str, Any]) -> Suite:
    suite = validated(path, fields, Suite, "suite")
    if suite.path is not None:
        beside = path.parent / Path(suite.path).expanduser()
        suite = suite.model_copy(update={"path": str(beside)})
    return suite


def _own_yaml(path: Path) -> Suite:
    """A suite's YAML of one's own: what it does not say is taken to be the plain case."""
    found = _suites_in(path)
    if len(found) > 1:
        names = ", ".join(str(f.get("name")) for f in found)
        raise ConfigError(f"{path} holds several suites ({names}): one file for each")
    fields = found[0]
    plain = {
        "name": path.stem,
        "version": "own",
        "title": fields.get("name", path.stem),
        "loader": "hub" if "hub" in fields else "jsonl",
        "source": str(path),
        "license": "your own",
    }
    return _suite(path, plain | fields)
