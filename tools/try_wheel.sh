#!/usr/bin/env bash
# Installs a wheel into an empty environment, hides all compilers, and runs the demonstration and the tests that need none:
# tools/try_wheel.sh dist/interposer_nn-0.1.0-py3-none-manylinux_2_35_x86_64.whl
set -euo pipefail
wheel=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$wheel[all,testing]" hypothesis pytest-xdist
cp -r "$root"/{tests,examples,conftest.py,pyproject.toml,README.md,docs,tools} "$work"
mkdir "$work/bin"
for tool in bash cat cp env grep head ls mkdir mv rm sed sh tail uname; do ln -s "$(command -v $tool)" "$work/bin"; done
export PATH="$work/venv/bin:$work/bin"
cd "$work"
! command -v cc c++ gcc g++ clang clang++ rustc || { echo "a compiler is in PATH" >&2; exit 1; }

interposer --version
interposer backends
interposer run examples/digits/digits.onnx --input examples/digits/seven.png --labels examples/digits/labels.txt --top 1
interposer explain examples/digits/digits.onnx
python -m pytest -q -n auto --dist worksteal -m 'not slow' tests/test_tiny.py tests/ir tests/ops tests/core tests/runtime \
  tests/session tests/frontends tests/backends/cpuacc
