"""A YAML file as a model, with one clear error when it is not one."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from peagle_bench.errors import ConfigError, first_error

Model = TypeVar("Model", bound=BaseModel)


def read_model(path: Path, model: type[Model], kind: str) -> Model:
    """Raises ConfigError naming the file, and the field that is wrong."""
    try:
        return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ConfigError(f"{path} is no {kind}: {first_error(error)}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
