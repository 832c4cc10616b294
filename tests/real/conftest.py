"""One real run that the tests of this folder share: four vLLM servers on the CPU build."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from peagle_bench.core.plan import Cell
from peagle_bench.core.record import CellData
from peagle_bench.profiles import profile_named
from peagle_bench.reporting import Reported, analyse
from peagle_bench.resources import data_root
from peagle_bench.store import RunFolder
from tests.conftest import Cli


@dataclass(frozen=True)
class RealRun:
    folder: RunFolder
    printed: str
    exit_code: int
    reported: Reported

    def data(self) -> dict[tuple[str, int], tuple[Cell, CellData]]:
        """By method and C."""
        return {
            (c.group.method, c.concurrency): (c, self.folder.read_data(c))
            for c in self.reported.plan.cells
            if self.folder.has_cell(c)
        }


def bad_head(where: Path) -> Path:
    """A copy of the EAGLE-3 head whose config claims another hidden size."""
    folder = where / "bad-head"
    shutil.copytree(data_root() / "models/smollm2-135m/eagle3", folder)
    config = json.loads((folder / "config.json").read_text())
    config["hidden_size"] = 320
    config["num_attention_heads"] = 5
    config["num_key_value_heads"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """baseline, EAGLE-3 and P-EAGLE at K=3, C=1 and 2, and a head that does not fit."""
    where = tmp_path_factory.mktemp("real")
    profile = profile_named("smollm2-135m").model_dump(mode="json")
    profile["name"] = "with-a-bad-head"
    profile["heads"]["eagle"] = {"model": str(bad_head(where))}
    (where / "profile.yaml").write_text(yaml.safe_dump(profile))
    done = Cli(where)(
        "run", "-p", "profile.yaml", "-m", "eagle,baseline,eagle3,peagle", "-k", "3", "-c", "1,2",
        "--limit", "4", "--max-tokens", "32", "--warmup", "1", "--out", "run",
        timeout=1400, env={k: v for k, v in os.environ.items() if k != "PEAGLE_BENCH_CACHE"},
    )  # fmt: skip
    folder = RunFolder(where / "run")
    assert folder.has_manifest, done.stdout + done.stderr
    return RealRun(folder, done.stdout + done.stderr, done.returncode, analyse(folder))
