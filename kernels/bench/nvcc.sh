#!/bin/bash
# Compiles the kernels with nvcc, to compare its code with clang's:
#
#   kernels/bench/nvcc.sh OUT [NAME...]      all files of src unless some are named
#   gpubench -mode bench -out clang.jsonl
#   gpubench -mode bench -out nvcc.jsonl -images OUT
#   kernels/bench/compare.py clang.jsonl nvcc.jsonl
#
# Writes OUT/NAME.cubin for sm_90 and OUT/NAME.log with registers and spills.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
mkdir -p "$out"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
export here out nvcc
one() {
  name=$(basename "$1" .cu)
  "$nvcc" -std=c++17 -O3 -arch=sm_90 -cubin -Xptxas -v -include "$here/nvcc.h" -I "$here/../src" -o "$out/$name.cubin" "$1" >"$out/$name.log" 2>&1 ||
    { echo "$name: nvcc failed:"; grep -m 3 error "$out/$name.log"; exit 1; }
}
export -f one
[ $# -gt 0 ] || set -- $(basename -s .cu "$here"/../src/*.cu)
printf "$here/../src/%s.cu\n" "$@" | xargs -P "$(nproc)" -I{} bash -c 'one {}'
