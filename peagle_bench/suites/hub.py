"""The Hugging Face hub through `datasets`, which heeds HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.

A suite that was prepared (`suites prepare`) lies in our own cache and needs no hub any more.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from peagle_bench.core.suite import Columns, HubSource, Prompt, Suite
from peagle_bench.errors import ConfigError, SuiteUnavailable, first_error
from peagle_bench.suites import prepared
from peagle_bench.suites.files import data_files, digest_of_files, rows_of
from peagle_bench.suites.loaded import Loaded, LoadOptions, Skipped, Unusable
from peagle_bench.suites.rows import of_columns, sendable

Rows = list[dict[str, Any]]

REACH_S = 10.0
_REFERENCE = (
    "Write hub:owner/name,split=…,config=…,revision=…, and the columns: one of prompt=, turns=, "
    "messages=, conversations=, beside id= and category="
)
STREAM_BUFFER = 10_000
"""Rows of a stream among which a sample is drawn."""
DRAWN_BY = 0
"""Seed of every suite's own sample: it belongs to the suite, not to a run."""


def load(suite: Suite, options: LoadOptions) -> Loaded:
    """A hub suite's prompts. Raises SuiteUnavailable, or ConfigError for a wrong mapping."""
    assert suite.hub is not None and suite.columns is not None
    rows, facts = rows_of_suite(suite, options)
    _check_columns(suite.hub.dataset, suite.columns, rows)
    skipped = Skipped()
    prompts: list[Prompt] = []
    for number, row in enumerate(rows):
        try:
            prompt = of_columns(row, suite.columns, f"{suite.name}/{number}", suite)
            prompts.append(sendable(prompt))
        except Unusable as why:
            skipped.add(str(why), f"row {number}")
    if not prompts:
        raise ConfigError(f"no row of {suite.hub.dataset} is a request: {skipped}")
    return Loaded(prompts, skipped.stamps(len(rows)), facts | {"skipped": dict(skipped.reasons)})


def rows_of_suite(suite: Suite, options: LoadOptions) -> tuple[Rows, dict[str, Any]]:
    """The suite's rows, its own sample drawn, and where they came from.

    Prepared rows go before the hub. Raises SuiteUnavailable.
    """
    held = prepared.read(suite)
    if held is not None:
        return held
    rows, facts = _asked(suite, options)
    if suite.hub is not None and suite.hub.stream:
        prepared.write(suite, rows, facts)  # a stream leaves nothing in the library's own cache
    return rows, facts


def _asked(suite: Suite, options: LoadOptions) -> tuple[Rows, dict[str, Any]]:
    """The suite's rows as the hub has them."""
    assert suite.hub is not None
    if not suite.hub.stream:
        rows, facts = fetch(suite.hub, suite)
        return sampled(suite, rows), facts
    options.say(f"drawing {suite.sample} rows from the stream of {suite.hub.dataset}")
    return fetch(suite.hub, suite, limit=suite.sample)


def prepare(suite: Suite, path: Path | None, options: LoadOptions) -> str:
    """Rows of the hub, or of `path`, laid by; one line for the user. Raises SuiteUnavailable."""
    if path is None:
        rows, facts = _asked(suite, options)
    else:
        files = data_files(path)
        rows = [row for file in files for _, row in rows_of(file) if isinstance(row, dict)]
        if suite.columns is not None:
            _check_columns(str(path), suite.columns, rows)
        rows = sampled(suite, rows)
        facts = {"source": str(path), "file": digest_of_files(files)}
    folder = prepared.write(suite, rows, facts)
    return f"{len(rows)} rows from {facts['source']} laid by in {folder}"


def is_here(suite: Suite) -> bool:
    return prepared.is_prepared(suite.name)


def sampled(suite: Suite, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The suite's own sample, in the source's order. Raises SuiteUnavailable for a wrong count."""
    if suite.rows is not None and len(rows) != suite.rows:
        raise SuiteUnavailable(f"{suite.name} has {suite.rows} rows, its source gave {len(rows)}")
    if suite.sample is None or suite.sample >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(DRAWN_BY).sample(range(len(rows)), suite.sample))]


def fetch(source: HubSource, suite: Suite, limit: int | None = None) -> tuple[Rows, dict[str, Any]]:
    """Rows of a data set and where they came from; with `limit`, that many drawn from the
    beginning of its stream.

    Where the hub is out of reach the library's own cache serves, but only the commit that is
    pinned: the library itself would hand out another without a word. Raises SuiteUnavailable
    saying what to do.
    """
    _settle_environment()
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    unreached = _unreached(source)
    words: dict[str, Any] = {"split": source.split, "revision": source.revision}
    held: dict[str, Any] = {"name": source.config, "revision": source.revision}
    with _offline(datasets, unreached is not None):
        try:
            builder = datasets.load_dataset_builder(source.dataset, **held)
            served = str(builder.hash)
            if source.revision not in (None, served):
                raise SuiteUnavailable(
                    f"the cache holds {source.dataset} at {served[:12]}, not at the pinned "
                    f"{str(source.revision)[:12]}, and {unreached or 'the hub does not give it'}. "
                    f"{_local(suite)}"
                )
            if limit is None:
                loaded: Iterable[Any] = datasets.load_dataset(
                    source.dataset, source.config, **words
                )
            else:
                stream = datasets.load_dataset(
                    source.dataset, source.config, streaming=True, **words
                )
                loaded = islice(stream.shuffle(seed=DRAWN_BY, buffer_size=STREAM_BUFFER), limit)
            rows = [dict(row) for row in loaded]
        except SuiteUnavailable:
            raise
        except Exception as error:  # whatever the library raises, the user needs one sentence
            raise SuiteUnavailable(_why(source, suite, error, unreached)) from error
    facts: dict[str, Any] = {"source": f"hub {source.dataset}", "revision": served}
    if source.config is not None:
        facts["config"] = source.config
    return rows, facts


def _unreached(source: HubSource) -> str | None:
    """Why the hub cannot be asked; None when it answers.

    One question with a time-out of its own: the library would try for 23 s, or minutes. Raises
    SuiteUnavailable for what asking again cannot mend.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    page = f"{endpoint()}/datasets/{source.dataset}"
    try:
        HfApi().dataset_info(source.dataset, revision=source.revision, timeout=REACH_S)
    except RevisionNotFoundError as error:
        raise SuiteUnavailable(
            f"{source.dataset} has no revision {source.revision}: see {page}/commits/main"
        ) from error
    except RepositoryNotFoundError as error:
        raise SuiteUnavailable(
            f"{source.dataset} is not on {endpoint()}, or not for "
            f"{'this HF_TOKEN' if os.environ.get('HF_TOKEN') else 'anybody without HF_TOKEN'}: "
            f"see {page}"
        ) from error
    except HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 401:
            raise SuiteUnavailable(
                f"{endpoint()} does not take this HF_TOKEN (HTTP 401): make a new one at "
                f"{endpoint()}/settings/tokens, or unset it for public data"
            ) from error
        return f"{_host()} answered HTTP {status}"
    except Exception as error:  # no connection, no name, no answer in time
        return f"{_host()} cannot be reached ({type(error).__name__}: {_line(error)})"
    return None


@contextlib.contextmanager
def _offline(datasets: Any, wanted: bool) -> Iterator[None]:
    """The library's cache alone: both read their switch when they are imported."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if wanted:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _settle_environment() -> None:
    """What the libraries read when they are imported."""
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")
    if os.environ.get("HF_ENDPOINT", "").endswith("/"):
        os.environ["HF_ENDPOINT"] = os.environ["HF_ENDPOINT"].rstrip("/")


def suite_of_reference(text: str) -> Suite:
    """`hub:owner/name,split=train,prompt=instruction,…` as a suite. Raises ConfigError."""
    dataset, *words = [w.strip() for w in text.removeprefix("hub:").split(",")]
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise ConfigError(f"{text}: {word!r} is no name=value")
        if name.strip() in given:
            raise ConfigError(f"{text}: {name.strip()} is given twice")
        given[name.strip()] = value.strip()
    of_source: dict[str, Any] = {
        k: given.pop(k) for k in ("config", "split", "revision") if k in given
    }
    unknown = given.keys() - Columns.model_fields.keys()
    if unknown:
        raise ConfigError(f"{text}: unknown {', '.join(sorted(unknown))}. {_REFERENCE}")
    try:
        return Suite(
            name=dataset.replace("/", "--"),
            version="hub",
            title=dataset,
            loader="hub",
            source=f"{dataset} (hub)",
            license="as its page says",
            hub=HubSource(dataset=dataset, **of_source),
            columns=Columns(**given),
        )
    except ValidationError as error:
        raise ConfigError(f"{text}: {first_error(error)}. {_REFERENCE}") from error


def endpoint() -> str:
    """The hub that is asked."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _check_columns(dataset: str, columns: Columns, rows: list[dict[str, Any]]) -> None:
    held = rows[0].keys() if rows else ()
    missing = [c for c in columns.model_dump().values() if c is not None and c not in held]
    if missing:
        raise ConfigError(f"{dataset} has no column {', '.join(missing)}; it has {', '.join(held)}")


def _why(source: HubSource, suite: Suite, error: Exception, unreached: str | None) -> str:
    """One sentence for what went wrong, and what to do."""
    text, page = str(error), f"{endpoint()}/datasets/{source.dataset}"
    if "gated" in text.lower():
        given = os.environ.get("HF_TOKEN")
        token = "this HF_TOKEN has no access" if given else "no HF_TOKEN is set"
        return (
            f"{source.dataset} is gated and {token}: accept its terms at {page}, then export "
            f"HF_TOKEN. Or: {_local(suite)}"
        )
    if "BuilderConfig" in text or "Config name is missing" in text:
        return f"{source.dataset} has no config {source.config}: {_line(error)}"
    if isinstance(error, ValueError) and "split" in text.lower():
        return f"{source.dataset} has no split {source.split}: {_line(error)}"
    if unreached is not None:
        return f"{source.dataset} is not in the cache, and {unreached}. {_local(suite)}"
    what = f"{type(error).__name__}: {_line(error)}"
    return f"{source.dataset} cannot be loaded ({what}). {_local(suite)}"


def _local(suite: Suite) -> str:
    """How to do without the hub."""
    told = f"peagle-bench suites prepare {suite.name} --from PATH takes a copy from this machine"
    if suite.name.count("--") or suite.path:
        told = "--suite PATH takes a copy from this machine"
    return f"{told}; --suite {suite.stand_in} needs no hub" if suite.stand_in else told


def _host() -> str:
    return urlsplit(endpoint()).netloc


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
