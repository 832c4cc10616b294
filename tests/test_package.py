"""What leaves the repository: the wheel, and what provenance tells."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from peagle_bench import __version__, provenance

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_carries_suites_and_profiles_and_stays_small(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "peagle_bench/_data/suites/humaneval.yaml" in names
    assert "peagle_bench/_data/profiles/smollm2-135m.yaml" in names
    assert wheel.stat().st_size < 5_000_000


def test_a_run_works_from_the_unpacked_wheel_alone(
    wheel: Path, tmp_path: Path, cache: Path
) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-m", "peagle_bench", "run", "-p", "calibration", "-m", "baseline",
         "-c", "1", "--limit", "2", "--max-tokens", "4", "--out", "r"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PEAGLE_BENCH_CACHE": str(cache),
             "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    software = json.loads((tmp_path / "r/manifest.json").read_text())["provenance"]["software"]
    assert software["commit"] is None
    assert software["peagle_bench"] == __version__


def test_the_machine_is_described_without_naming_it() -> None:
    import socket

    told = json.dumps(provenance.machine())
    assert socket.gethostname() not in told or len(socket.gethostname()) < 3
    assert provenance.machine()["cores"] >= 1


def test_a_weights_digest_changes_with_its_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = provenance.folder_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert provenance.folder_digest(tmp_path) != first


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 'NVIDIA B200, 580.65.06, 183359'\necho 'broken line'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    provenance.gpus.cache_clear()
    (gpu,) = provenance.gpus()
    provenance.gpus.cache_clear()
    assert gpu["name"] == "NVIDIA B200"
    assert gpu["memory_gib"] == pytest.approx(179.06, abs=0.01)
