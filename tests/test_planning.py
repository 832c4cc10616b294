from __future__ import annotations

from pathlib import Path

import pytest

from peagle_bench.core.profile import Profile
from peagle_bench.errors import ConfigError, UnknownName
from peagle_bench.planning import Prepared, prepare, read_config, resolve
from peagle_bench.profiles import choose, profile_named


def prepared(**options: object) -> Prepared:
    config, profile, why = resolve({"profile": "calibration", **options})
    return prepare(config, profile, why)


def test_defaults_come_from_the_profile() -> None:
    config, profile, _ = resolve({"profile": "calibration"})
    assert config.depths == profile.defaults.depths
    assert config.methods == ("baseline", "eagle3", "peagle")


def test_spellings_are_resolved_and_repeats_of_a_name_dropped() -> None:
    config, _, _ = resolve(
        {"profile": "calibration", "methods": ("P-EAGLE", "peagle", "none"), "depths": (7, 3, 7)}
    )
    assert config.methods == ("peagle", "baseline")
    assert config.depths == (3, 7)


def test_limit_0_means_every_prompt() -> None:
    assert resolve({"profile": "calibration", "limit": 0})[0].limit is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"depths": (0,)}, "--depths must be at least 1"),
        ({"concurrency": (-2,)}, "--concurrency must be at least 1"),
        ({"depths": ()}, "--depths is empty"),
        ({"repeats": 0}, "repeats: .*greater than or equal to 1"),
        ({"server_command": "docker run -e HF_TOKEN=hf_x img"}, "looks like a secret"),
    ],
)
def test_options_that_make_no_plan_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        resolve({"profile": "calibration", **options})


def test_an_unknown_profile_names_the_near_match() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'calibration'"):
        resolve({"profile": "calibraton"})


def test_more_in_flight_than_prompts_is_refused() -> None:
    with pytest.raises(ConfigError, match="C=16 can never be in flight with 8 prompts"):
        prepared(limit=8, concurrency=(1, 16))


def test_the_baseline_has_no_depth_and_each_server_starts_once() -> None:
    plan = prepared(depths=(3, 7), concurrency=(1, 4), repeats=2).plan
    slugs = [g.slug for g in plan.groups]
    assert slugs == [
        f"{m}-r{r}"
        for r in (1, 2)
        for m in ("baseline", "eagle3-k3", "eagle3-k7", "peagle-k3", "peagle-k7")
    ]
    assert len(plan.cells) == 10 * 2
    assert len({c.cell_id for c in plan.cells}) == 20
    assert len({c.slug for c in plan.cells}) == 20


BASE = {"methods": ("peagle",), "depths": (3,), "concurrency": (1,), "limit": 8}


@pytest.mark.parametrize(
    "change",
    [
        {"depths": (5,)},
        {"concurrency": (2,)},
        {"limit": 9},
        {"max_tokens": 63},
        {"temperature": 0.5},
        {"seed": 1},
        {"warmup": 3},
        {"suites": ("humaneval-raw",)},
        {"server_flags": {"step-ms": 5}},
    ],
)
def test_whatever_can_change_a_cells_numbers_changes_its_id(change: dict[str, object]) -> None:
    one = prepared(**BASE).plan.cells[0].cell_id
    assert prepared(**{**BASE, **change}).plan.cells[0].cell_id != one


@pytest.mark.parametrize("change", [{"keep_text": True}, {"methods": ("peagle", "eagle3")}])
def test_what_cannot_change_a_cells_numbers_leaves_its_id(change: dict[str, object]) -> None:
    one = prepared(**BASE).plan.cells[0].cell_id
    assert prepared(**{**BASE, **change}).plan.cells[0].cell_id == one


def test_depths_above_the_trained_one_are_noted() -> None:
    assert any("K=9 is above the 8" in n for n in prepared(depths=(3, 9)).notes)


def test_a_config_file_is_options_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("suites: [humaneval]\nmax-tokens: 9\n")
    assert read_config(path) == {"suites": ["humaneval"], "max_tokens": 9}
    path.write_text("sweets: [humaneval]\n")
    with pytest.raises(ConfigError, match="unknown options sweets"):
        read_config(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path / "none.yaml")


def gpu(memory_gib: float) -> dict[str, object]:
    return {"name": "NVIDIA B200", "driver": "580.0", "memory_gib": memory_gib}


def test_auto_takes_the_largest_target_that_fits_and_says_why() -> None:
    profile, why = choose([gpu(180.0)])
    assert profile.name == "gpt-oss-20b"
    assert "1 x NVIDIA B200, 180 GiB" in why


@pytest.mark.parametrize("gpus", [[], [gpu(8.0)]])
def test_auto_falls_back_to_the_embedded_profile(gpus: list[dict[str, object]]) -> None:
    profile, why = choose(gpus)
    assert profile.name == "smollm2-135m"
    assert "embedded default" in why


def test_the_profile_of_a_file_is_read_and_a_broken_one_named(tmp_path: Path) -> None:
    source = profile_named("calibration")
    path = tmp_path / "mine.yaml"
    path.write_text(source.model_dump_json())  # JSON is YAML
    assert isinstance(profile_named(str(path)), Profile)
    path.write_text("name: x\n")
    with pytest.raises(ConfigError, match="is no profile"):
        profile_named(str(path))
