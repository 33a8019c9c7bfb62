#!/usr/bin/env bash
# The tests of the kernels, the paths, the engine and the models against kernels built with the address and undefined-behaviour sanitizers of GCC.
#
# Everything happens in build/sanitize; the installed module stays as it is. The sanitized copy of the package lives in a
# small virtual environment there, which sees the packages of .venv through a .pth file: a path named in a .pth file is
# searched, but the .pth files in it (the editable install of neuralcde) are not read.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin="$PWD/.venv/bin"
build="$PWD/build/sanitize"
mkdir -p "$build"

PATH="$bin:$PATH" cmake -S . -B "$build/cmake" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNEURALCDE_SANITIZE=ON \
  -DPython_EXECUTABLE="$bin/python" -Dnanobind_DIR="$("$bin/python" -m nanobind --cmake_dir)"
PATH="$bin:$PATH" cmake --build "$build/cmake"

"$bin/python" -m venv --without-pip --clear "$build/venv"
site() { "$1/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
packages="$(site "$build/venv/bin")"
site "$bin" > "$packages/parent.pth"
cp -r src/neuralcde "$packages/"
"$bin/cmake" --install "$build/cmake" --prefix "$packages"

# The sanitizers must be the first libraries of the process; libstdc++ comes with them so that exceptions are seen.
compiler="${CXX:-c++}"
libraries="$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libubsan.so)"
libraries="$libraries:$("$compiler" -print-file-name=libstdc++.so)"
# Python and torch leave much to the end of the process: leaks are not looked for.
export ASAN_OPTIONS="detect_leaks=0:strict_init_order=1:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"
export PYTHONDONTWRITEBYTECODE=1

LD_PRELOAD="$libraries" "$build/venv/bin/python" - "$packages" <<'CHECK'
import sys
from neuralcde._native import _kernels
assert _kernels.__file__.startswith(sys.argv[1]), _kernels.__file__
assert b"__asan_init" in open(_kernels.__file__, "rb").read()
CHECK
LD_PRELOAD="$libraries" "$build/venv/bin/python" -m pytest -n 2 -p no:cacheprovider tests/native tests/paths tests/engine tests/models \
  --deselect tests/paths/test_memory.py "$@"
