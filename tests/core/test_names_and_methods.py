from __future__ import annotations

import pytest

from peagle_bench.core.method import METHODS, method_named
from peagle_bench.core.profile import HeadSpec
from peagle_bench.errors import UnknownName


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("peagle", "peagle"),
        ("P-EAGLE", "peagle"),
        ("p_eagle", "peagle"),
        ("EAGLE-3", "eagle3"),
        ("eagle3", "eagle3"),
        ("Baseline", "baseline"),
        ("none", "baseline"),
        ("n-gram", "ngram"),
        ("draft-model", "draft_model"),
        ("EAGLE-2", "eagle"),
    ],
)
def test_a_method_is_found_in_any_usual_spelling(typed: str, meant: str) -> None:
    assert method_named(typed).name == meant


@pytest.mark.parametrize(("typed", "near"), [("peagel", "peagle"), ("egle3", "eagle3")])
def test_an_unknown_method_is_refused_with_the_near_match(typed: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean.*'{near}'"):
        method_named(typed)


def test_two_methods_never_share_a_spelling() -> None:
    from peagle_bench.core.names import fold

    spellings = [fold(s) for m in METHODS.values() for s in (m.name, *m.aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("baseline", None),
        ("eagle3", {"method": "eagle3", "model": "H", "num_speculative_tokens": 5}),
        (
            "peagle",
            {
                "method": "eagle3",
                "model": "H",
                "num_speculative_tokens": 5,
                "parallel_drafting": True,
            },
        ),
        (
            "ngram",
            {
                "method": "ngram",
                "num_speculative_tokens": 5,
                "prompt_lookup_max": 4,
                "prompt_lookup_min": 2,
            },
        ),
        (
            "pard",
            {
                "method": "draft_model",
                "model": "H",
                "num_speculative_tokens": 5,
                "parallel_drafting": True,
            },
        ),
    ],
)
def test_the_speculative_config_is_what_vllm_reads(method: str, expected: object) -> None:
    assert METHODS[method].speculative_config(5, HeadSpec(model="H")) == expected


def test_a_method_with_a_head_cannot_be_configured_without_one() -> None:
    with pytest.raises(ValueError, match="needs a head"):
        METHODS["eagle3"].speculative_config(3, None)


def test_a_heads_pinned_revision_reaches_the_server() -> None:
    head = HeadSpec(model="org/head", revision="abc123")
    config = METHODS["peagle"].speculative_config(7, head)
    assert config is not None
    assert config["revision"] == "abc123"
