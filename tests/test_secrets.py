from __future__ import annotations

import pytest

from peagle_bench.secrets import is_secret_name, masked, secret_in_command


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("api-key", True),
        ("hf-token", True),
        ("OPENAI_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("max-num-batched-tokens", False),
        ("max-tokens", False),
        ("dtype", False),
        ("tokenizer", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    "command",
    [
        "docker run -e HF_TOKEN=hf_x img",
        "cmd --hf-token hf_x",
        "cmd --api-key=sk-x",
        "cmd --api-key sk-x",
        "env AUTH=x cmd",
        "cmd https://user:pw@host/",
        "cmd -H 'Bearer abcdefgh'",
    ],
)
def test_a_secret_in_a_command_is_seen(command: str) -> None:
    assert secret_in_command(command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "docker run --rm -e HF_TOKEN --gpus all img",
        "docker run --rm --gpus all --network host vllm/vllm-openai:v0.32.0",
        "python -m vllm.entrypoints.openai.api_server --max-num-batched-tokens 8192",
        "cmd --tokenizer path/to/it",
    ],
)
def test_a_command_without_a_secret_is_left_alone(command: str) -> None:
    assert secret_in_command(command) is None


def test_values_of_secret_variables_are_masked_in_any_text() -> None:
    environment = {"HF_TOKEN": "hf_0123456789", "HOME": "/root/something", "X_TOKEN": "ab"}
    assert masked("a hf_0123456789 b /root/something ab", environment) == (
        "a *** b /root/something ab"
    )
