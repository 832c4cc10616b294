"""Write a trained checkpoint as a directory that vLLM loads as a drafter.

python export.py --checkpoint work/peagle/checkpoint.pt --target-path TARGET --out ../peagle
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYER_MATRICES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def tensors(checkpoint: dict) -> dict[str, torch.Tensor]:
    """The tensors of a head under vLLM's names, float16 (d2t: int64)."""
    head, config = checkpoint["head"], checkpoint["config"]
    scale = checkpoint["scale"]
    vocabulary = checkpoint["vocabulary"]
    out = {
        "fc.weight": head["fc.weight"] * scale,
        "norm.weight": head["norm"],
        "lm_head.weight": head["lm_head.weight"],
    }
    for i in range(config["layers"]):
        name = "midlayer" if config["layers"] == 1 else f"layers.{i}"
        for matrix in LAYER_MATRICES:
            out[f"{name}.{matrix}.weight"] = head[f"layers.{i}.{matrix.split('.')[1]}.weight"]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"{name}.{norm}.weight"] = head[f"layers.{i}.{norm}"]
        if i == 0:
            out[f"{name}.hidden_norm.weight"] = head["hidden_norm"]
    if config["parallel"]:
        # In training the mask replaces the scaled states; vLLM passes it through the scaled fc.
        out["mask_hidden"] = (head["mask_hidden"] / scale).view(1, -1)
    out = {name: tensor.half().contiguous() for name, tensor in out.items()}
    out["d2t"] = vocabulary - torch.arange(len(vocabulary))
    return out


def vllm_config(checkpoint: dict, target: dict) -> dict:
    """config.json of a head; sizes of the target's embedding come from the target's config."""
    c = checkpoint["config"]
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "dtype": "float16",
        "hidden_size": c["hidden"],
        "intermediate_size": c["intermediate"],
        "num_hidden_layers": c["layers"],
        "num_attention_heads": c["heads"],
        "num_key_value_heads": c["kv_heads"],
        "head_dim": c["head_dim"],
        "hidden_act": "silu",
        "rms_norm_eps": c["eps"],
        "rope_parameters": {"rope_theta": c["rope_theta"], "rope_type": "default"},
        "max_position_embeddings": target["max_position_embeddings"],
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": target["vocab_size"],
        "draft_vocab_size": c["draft_vocab"],
        "tie_word_embeddings": False,
        "norm_before_residual": True,
        "bos_token_id": target["bos_token_id"],
        "eos_token_id": target["eos_token_id"],
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(c["aux_layers"]),
            "use_aux_hidden_state": True,
        },
    }
    if c["parallel"]:
        config["ptd_token_id"] = checkpoint["mask_token"]
        config["peagle_trained_depth"] = c["depth"]
    else:
        config["eagle3_trained_depth"] = c["depth"]
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--target-path", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkpoint = torch.load(args.checkpoint, weights_only=True)
    target = json.loads((args.target_path / "config.json").read_text())
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors(checkpoint), args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "model.safetensors").chmod(0o644)  # safetensors makes it private
    config = vllm_config(checkpoint, target)
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{args.out}: {(args.out / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
