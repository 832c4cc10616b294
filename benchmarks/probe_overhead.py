"""What the probe costs: one profile and method, with and without it, in turn A B A B.

    python benchmarks/probe_overhead.py [--profile smollm2-135m] [--method peagle] [--depth 7]
                                        [--turns 2] [--limit 8] [--max-tokens 64]

Prints the OTPS of each turn and the ratio of the sums, with the probe over without. Run it with
nothing else on the machine.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path


def measured(options: argparse.Namespace, flag: str, out: Path) -> tuple[float, float]:
    """(tokens, seconds) of one run."""
    words = [
        sys.executable, "-m", "peagle_bench", "run", "--profile", options.profile,
        "--methods", options.method, "--depths", str(options.depth), "--concurrency", "1",
        "--limit", str(options.limit), "--max-tokens", str(options.max_tokens), flag,
        "--out", str(out), "--yes",
    ]  # fmt: skip
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    with (out / "cells.csv").open() as file:
        (row,) = csv.DictReader(file)
    return float(row["output_tokens"]), float(row["duration_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--profile", default="smollm2-135m")
    parser.add_argument("--method", default="peagle")
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    sums = {"--probe": [0.0, 0.0], "--no-probe": [0.0, 0.0]}
    with tempfile.TemporaryDirectory(prefix="peagle-bench-probe-") as where:
        for turn in range(options.turns):
            for flag, held in sums.items():
                tokens, seconds = measured(options, flag, Path(where) / f"{turn}{flag}")
                print(f"turn {turn + 1} {flag:<10} {tokens / seconds:8.3f} tok/s", flush=True)
                held[0] += tokens
                held[1] += seconds
    rates = {flag: tokens / seconds for flag, (tokens, seconds) in sums.items()}
    print(f"with the probe / without: {rates['--probe'] / rates['--no-probe']:.4f}")


if __name__ == "__main__":
    main()
