#!/bin/sh
# Times collectives over two domains of two GPUs: flat, as NCCL has them, and taken apart into
# collectives within domains and along rails. A process has a GPU; between the declared hosts there is
# the network that NCCL finds, also where they are one machine. Prints a JSON line for each,
# behind its operation, bytes and form; with small sizes it compares with the interpreter.
#
#   tools/domains.sh LOWERDUMP [SIZES-IN-KIB [FLAGS OF lowerdump run...]]
#
# such as tools/domains.sh bin/lowerdump '1024 16384 1048576' -nccl=/usr/lib/libnccl.so.2, and
# tools/domains.sh bin/lowerdump 1 -fake-gpus=4 without GPUs, where times say nothing.
set -e
dump=$1
sizes=${2:-1024 4096 16384 65536 262144 1048576}
shift
[ $# -eq 0 ] || shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for kib in $sizes; do
	whole=$((kib * 256))
	piece=$((whole / 4))
	for op in all_gather reduce_scatter.sum all_reduce.sum all_to_all; do
		in=$whole out=$whole attrs=
		case $op in
		all_gather) in=$piece attrs=' {dim=0}' ;;
		reduce_scatter.sum) out=$piece attrs=' {dim=0}' ;;
		esac
		cat >"$dir/step.ir" <<-END
			world 4
			group @g = [[0, 1, 2, 3]]

			func @step(%x: f32[$in]) -> (f32[$out]) {
			  %a = $op %x on @g$attrs : async f32[$out]
			  %v = wait_tensor %a : f32[$out]
			  return %v
			}
		END
		expect=
		[ "$kib" -gt 4096 ] || expect=-expect=interp
		for form in flat hierarchy; do
			passes=plan-memory
			[ $form = flat ] || passes="hierarchy{domain=2,reassociate=true,when=always},plan-memory"
			"$dump" run -device=cuda -procs -hosts=2 -random=hash -bench -json -timeline=false $expect -passes="$passes" "$@" "$dir/step.ir" >"$dir/out"
			echo "$op $((kib * 1024)) $form $(grep '"func"' "$dir/out")"
		done
	done
done
