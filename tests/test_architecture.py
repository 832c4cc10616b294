"""The import rule, and what `--help` may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "peagle_bench"
# Layer by the first part below the package; each may import itself and what is listed.
BASE = {"errors", "resources", "secrets", "yamlfile", "__init__"}
ALLOWED = {
    "core": {"core"},
    "load": {"load", "core"},
    "analysis": {"analysis", "core"},
    "suites": {"suites", "core"},
    "targets": {"targets", "core"},
    "profiles": {"core"},
    "provenance": set(),
    "store": {"core"},
    "probe": {"probe", "core"},
    "scoring": {"scoring", "core"},
    "selection": {"core", "suites", "targets"},
    "planning": {"core", "profiles", "provenance", "scoring", "selection", "suites", "targets"},
    "conversations": {"core", "store"},
    "rendering": {"core", "targets"},
    "bench": {"core", "load", "analysis", "targets", "store", "planning", "conversations",
              "rendering", "probe", "scoring"},
    "runner": {"core", "load", "targets", "store", "provenance", "planning", "conversations",
               "bench", "probe"},
    "calibrate": {"core", "analysis", "bench", "planning", "runner", "store", "targets"},
    "output": {"output", "analysis", "core", "load", "planning"},
    "reporting": {"core", "analysis", "output", "store"},
    "suite_commands": {"core", "profiles", "provenance", "selection", "suites", "targets"},
    "cli": {"core", "planning", "runner", "reporting", "output", "store", "profiles", "targets",
            "suite_commands", "calibrate"},
    "__main__": {"cli"},
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "_data" not in p.parts)


def imported(path: Path) -> set[str]:
    """Layers of peagle_bench that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "peagle_bench":
                names = [f"peagle_bench.{a.name}" for a in node.names]
            else:
                names = [node.module]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "peagle_bench" and len(parts) > 1:
                found.add(parts[1])
    return found - BASE - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_the_layers_below_it(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if layer in BASE:
        assert imported(path) == set()
    else:
        assert imported(path) <= ALLOWED[layer]


@pytest.mark.parametrize("path", sorted((PACKAGE / "analysis").glob("*.py")), ids=lambda p: p.name)
def test_analysis_has_no_clock_no_network_and_no_files(path: Path) -> None:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            roots |= {a.name.split(".")[0] for a in node.names}
    assert not roots & {"time", "datetime", "os", "pathlib", "httpx", "socket", "asyncio", "io"}
    assert "open(" not in path.read_text()


def test_importing_the_cli_loads_nothing_heavy() -> None:
    code = "import peagle_bench.cli, sys; print(' '.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {m.split(".")[0] for m in out.stdout.split()}
    heavy = {"torch", "vllm", "pandas", "matplotlib", "datasets", "numpy", "scipy", "pyarrow",
             "transformers", "httpx", "pydantic"}  # fmt: skip
    assert loaded & heavy == set()


def test_no_module_is_called_utils_and_none_reads_outside_the_project() -> None:
    for path in modules():
        assert path.stem not in ("utils", "util", "helpers", "common"), path
