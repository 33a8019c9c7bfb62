#!/usr/bin/env bash
# Tests against kernels built with sanitizers of GCC: sanitize.sh address,undefined or sanitize.sh thread.
#
# Everything happens in build/; the installed module stays as it is. The sanitized copy of the package lives in a small
# virtual environment there, which sees the packages of .venv through a .pth file: a path named in a .pth file is
# searched, but the .pth files in it (the editable install of neuralcde) are not read.
set -euo pipefail
cd "$(dirname "$0")/../.."
sanitizers="$1"
shift
bin="$PWD/.venv/bin"
build="$PWD/build/sanitize-$sanitizers"
mkdir -p "$build"

PATH="$bin:$PATH" cmake -S . -B "$build/cmake" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DNEURALCDE_SANITIZE="$sanitizers" -DPython_EXECUTABLE="$bin/python" \
  -Dnanobind_DIR="$("$bin/python" -m nanobind --cmake_dir)"
PATH="$bin:$PATH" cmake --build "$build/cmake"

"$bin/python" -m venv --without-pip --clear "$build/venv"
site() { "$1/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
packages="$(site "$build/venv/bin")"
site "$bin" > "$packages/parent.pth"
cp -r src/neuralcde "$packages/"
rm -f "$packages"/neuralcde/_native/_kernels*.so
PATH="$bin:$PATH" cmake --install "$build/cmake" --prefix "$packages"

# The sanitizers must be the first libraries of the process; libstdc++ comes with them so that exceptions are seen.
compiler="${CXX:-c++}"
library() { "$compiler" -print-file-name="$1"; }
export PYTHONDONTWRITEBYTECODE=1
run=()
tests=(tests/native tests/paths tests/engine tests/models tests/solve/test_reversible.py tests/solve/test_sub_intervals.py
  --deselect tests/paths/test_memory.py)
if [ "$sanitizers" = thread ]; then
  # Python and torch are not instrumented, so what they do with memory is not looked at: their locks would not be seen.
  # Forked children are left out: this sanitizer does not support new threads in them. Addresses are not randomised,
  # because GCC 12 cannot deal with all that newer kernels give.
  libraries="$(library libtsan.so):$(library libstdc++.so)"
  export TSAN_OPTIONS="halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1"
  run=(setarch -R)
  # What shares work among threads, or is called from several at once.
  tests=(tests/native/test_process.py tests/native/test_row_feature_kernels.py tests/engine/test_engine_process.py
    tests/engine/test_batch_mates.py tests/engine/test_walks.py tests/models/test_model_streams.py
    tests/solve/test_reversible.py tests/solve/test_sub_intervals.py -k "not forked")
  symbol=__tsan_init
else
  libraries="$(library libasan.so):$(library libubsan.so):$(library libstdc++.so)"
  # Python and torch leave much to the end of the process: leaks are not looked for. Uses of a stack frame after its
  # return are not either: GCC 12 then aligns frames to 32 bytes, and 64-byte vectors on them crash. Arrays that do not
  # fit into memory are an error of numpy, as elsewhere.
  export ASAN_OPTIONS="detect_leaks=0:strict_init_order=1:detect_stack_use_after_return=0:allocator_may_return_null=1"
  export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"
  symbol=__asan_init
fi
sanitized() { "${run[@]}" env LD_PRELOAD="$libraries" "$build/venv/bin/python" "$@"; }

sanitized - "$packages" "$symbol" <<'CHECK'
import sys
from neuralcde._native import _kernels
assert _kernels.__file__.startswith(sys.argv[1]), _kernels.__file__
assert sys.argv[2].encode() in open(_kernels.__file__, "rb").read()
CHECK
sanitized -m pytest -n 2 -p no:cacheprovider "${tests[@]}" "$@"
