#!/usr/bin/env bash
# Everything the CPU stack needs, from a fresh clone: virtual environment, packages, target.
# The second time nothing is done unless the lock file or pyproject.toml changed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
torch_version=2.13.0
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

find_python() {
  local name
  for name in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$name" ] || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
    then
      echo "$name"
      return
    fi
  done
  echo "error: Python 3.11 to 3.13 is needed and not found; name one with PYTHON=/path/to/python" >&2
  exit 3
}

# vLLM's CPU build wants PyTorch's CPU wheel: where the package index has it, then PyTorch's own
# index. PyPI's wheel works too; it brings CUDA libraries (several GB) that stay unused.
install_torch() {
  local wanted="torch==$torch_version+cpu" index=${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}
  "$venv/bin/python" -m pip install -q --no-deps "$wanted" 2>/dev/null && return
  say "no $wanted on the configured package index: trying $index"
  "$venv/bin/python" -m pip install -q --no-deps --retries 0 --timeout 15 --index-url "$index" \
    "$wanted" 2>/dev/null && return
  say "not there either: taking torch==$torch_version from the package index (several GB)"
  "$venv/bin/python" -m pip install -q "torch==$torch_version"
}

stamp=$(cat requirements-cpu.lock pyproject.toml scripts/setup.sh | sha256sum | cut -c1-16)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$stamp" ]; then
  if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    say "virtual environment $venv with $("$python" --version)"
    "$python" -m venv "$venv"
  fi
  if [ "$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null \
      | cut -d+ -f1)" != "$torch_version" ]; then
    say "installing torch $torch_version for the CPU"
    install_torch
  fi
  # --no-deps: resolved by hand once. torchvision, torchaudio and torchcodec are left out on
  # purpose; PyPI's builds of them crash beside the CPU wheel, and vLLM serves text without them.
  say "installing the locked packages"
  "$venv/bin/python" -m pip install -q --no-deps -r requirements-cpu.lock
  "$venv/bin/python" -m pip install -q --no-deps --no-build-isolation -e .
  echo "$stamp" > "$venv/.stamp"
fi
"$venv/bin/peagle-bench" prepare
