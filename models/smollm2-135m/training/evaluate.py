"""Acceptance of a head on HumanEval in vLLM, greedy, at most 128 tokens a reply.

python evaluate.py --target-path TARGET --head ../peagle --k 3 --out work/peagle-k3.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from build_prompts import WRAPPER
from decontaminate import load_humaneval

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "2",
}


def counters(llm) -> tuple[int, int, list[int]]:
    """(drafts, accepted tokens, accepted tokens by position) since the start."""
    drafts = accepted = 0
    by_position: list[int] = []
    for metric in llm.get_metrics():
        if metric.name == "vllm:spec_decode_num_drafts":
            drafts += metric.value
        elif metric.name == "vllm:spec_decode_num_accepted_tokens":
            accepted += metric.value
        elif metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos":
            by_position = list(metric.values)
    return drafts, accepted, by_position


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-path", type=Path, required=True)
    parser.add_argument("--head", type=Path, required=True)
    parser.add_argument("--k", type=int, required=True, help="drafts a step")
    parser.add_argument("--problems", type=int, default=164, help="the first N of HumanEval")
    parser.add_argument("--every", type=int, default=1, help="take every n-th problem")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--humaneval", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    args = parser.parse_args()
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})
    from vllm import LLM, SamplingParams

    config = json.loads((args.head / "config.json").read_text())
    speculative = {"method": "eagle3", "model": str(args.head), "num_speculative_tokens": args.k}
    if "ptd_token_id" in config:
        speculative["parallel_drafting"] = True
    llm = LLM(
        str(args.target_path),
        dtype="float32",
        max_model_len=2048,
        enforce_eager=True,
        max_num_seqs=args.max_num_seqs,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=speculative,
    )
    problems = load_humaneval(args.humaneval)[:: args.every][: args.problems]
    chats = [[{"role": "user", "content": WRAPPER.format(prompt=p["prompt"])}] for p in problems]
    start = time.monotonic()
    outputs = llm.chat(
        chats, SamplingParams(temperature=0, max_tokens=args.max_tokens), use_tqdm=False
    )
    wall_s = time.monotonic() - start
    drafts, accepted, by_position = counters(llm)
    result = {
        "head": args.head.name,
        "num_speculative_tokens": args.k,
        "problems": len(problems),
        "every": args.every,
        "max_tokens": args.max_tokens,
        "output_tokens": sum(len(o.outputs[0].token_ids) for o in outputs),
        "num_drafts": drafts,
        "num_accepted_tokens": accepted,
        "acceptance_length": round(1 + accepted / drafts, 4),
        "acceptance_by_position": [round(a / drafts, 4) for a in by_position],
        "wall_s": round(wall_s, 1),
    }
    print(json.dumps(result))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
