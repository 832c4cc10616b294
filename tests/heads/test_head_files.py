"""The committed heads: the names, shapes and sizes that vLLM loads."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "models" / "smollm2-135m"
MAX_BYTES = 25_000_000
HEADS = ("eagle3", "peagle")


def header(path: Path) -> dict[str, dict]:
    """The tensors of a safetensors file: name to {dtype, shape}, without reading the data."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(size))
    tensors.pop("__metadata__", None)
    return {name: {"dtype": t["dtype"], "shape": t["shape"]} for name, t in tensors.items()}


def config_of(head: str) -> dict:
    return json.loads((MODELS / head / "config.json").read_text())


def expected_tensors(config: dict) -> dict[str, list[int]]:
    """What `vllm/model_executor/models/llama_eagle3.py` takes from a head of this config."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    aux = len(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"])
    shapes = {
        "fc.weight": [hidden, aux * hidden],
        "norm.weight": [hidden],
        "lm_head.weight": [config["draft_vocab_size"], hidden],
        "d2t": [config["draft_vocab_size"]],
    }
    layers = config["num_hidden_layers"]
    for i in range(layers):
        name = "midlayer" if layers == 1 else f"layers.{i}"
        width = 2 * hidden if i == 0 else hidden  # the first layer reads embedding and state
        shapes |= {
            f"{name}.self_attn.q_proj.weight": [q, width],
            f"{name}.self_attn.k_proj.weight": [kv, width],
            f"{name}.self_attn.v_proj.weight": [kv, width],
            f"{name}.self_attn.o_proj.weight": [hidden, q],
            f"{name}.mlp.gate_proj.weight": [mlp, hidden],
            f"{name}.mlp.up_proj.weight": [mlp, hidden],
            f"{name}.mlp.down_proj.weight": [hidden, mlp],
            f"{name}.input_layernorm.weight": [hidden],
            f"{name}.post_attention_layernorm.weight": [hidden],
        }
        if i == 0:
            shapes[f"{name}.hidden_norm.weight"] = [hidden]
    if "ptd_token_id" in config:
        shapes["mask_hidden"] = [1, aux * hidden]
    return shapes


@pytest.mark.parametrize("head", HEADS)
def test_tensors_have_the_names_and_shapes_that_vllm_loads(head):
    tensors = header(MODELS / head / "model.safetensors")
    assert {n: t["shape"] for n, t in tensors.items()} == expected_tensors(config_of(head))
    assert tensors.pop("d2t")["dtype"] == "I64"
    assert {t["dtype"] for t in tensors.values()} == {"F16"}


@pytest.mark.parametrize("head", HEADS)
def test_configs_fit_the_target(head):
    config = config_of(head)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["model_type"] == "llama"
    assert config["hidden_size"] == 576  # SmolLM2-135M
    assert config["vocab_size"] == 49152
    layers = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    # vLLM hands the states over in ascending order, and layer 30 is the target's last.
    assert layers == sorted(set(layers))
    assert max(layers) <= 30


def test_only_the_parallel_head_names_a_mask_token():
    assert "ptd_token_id" not in config_of("eagle3")
    assert 0 <= config_of("peagle")["ptd_token_id"] < 49152
    assert config_of("eagle3")["eagle3_trained_depth"] >= 3
    assert config_of("peagle")["peagle_trained_depth"] >= 7


@pytest.mark.parametrize("head", HEADS)
def test_draft_ids_map_to_distinct_target_ids(head):
    path = MODELS / head / "model.safetensors"
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        start, end = json.loads(file.read(size))["d2t"]["data_offsets"]
        file.seek(8 + size + start)
        offsets = struct.unpack(f"<{(end - start) // 8}q", file.read(end - start))
    ids = [i + offset for i, offset in enumerate(offsets)]
    assert ids == sorted(set(ids))
    assert ids[0] >= 0 and ids[-1] < 49152
    assert 2 in ids  # <|im_end|>: the end of a reply can be drafted


@pytest.mark.parametrize("head", HEADS)
def test_a_training_curve_and_a_card_belong_to_each_head(head):
    rows = (MODELS / "training" / f"curve-{head}.csv").read_text().splitlines()
    assert rows[0].startswith("step,wall_s,passes,loss,heldout_pos0")
    assert len(rows) > 3
    card = (MODELS / head / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "HumanEval" in card


def test_both_heads_together_stay_below_25_megabytes():
    files = [f for head in HEADS for f in (MODELS / head).rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) <= MAX_BYTES
