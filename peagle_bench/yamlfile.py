"""A YAML file as a model, with one clear error when it is not one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from peagle_bench.errors import ConfigError, first_error

Model = TypeVar("Model", bound=BaseModel)


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's mapping; {} for an empty file. Raises ConfigError for anything else."""
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if held is None:
        return {}
    if not isinstance(held, dict):
        raise ConfigError(f"{path} is not a mapping of names to values")
    return held


def validated(path: Path, fields: Mapping[str, Any], model: type[Model], kind: str) -> Model:
    """Raises ConfigError naming the file, and the field that is wrong."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise ConfigError(f"{path} is no {kind}: {first_error(error)}") from error


def read_model(path: Path, model: type[Model], kind: str) -> Model:
    """Raises ConfigError naming the file, and the field that is wrong."""
    return validated(path, read_mapping(path), model, kind)
