// Lets nvcc compile the kernels' sources: what clang calls the intrinsics that the
// prelude uses. Included before each source by nvcc.sh.
#pragma once
#define __nvvm_read_ptx_sreg_tid_x() threadIdx.x
#define __nvvm_read_ptx_sreg_ntid_x() blockDim.x
#define __nvvm_read_ptx_sreg_ctaid_x() blockIdx.x
#define __nvvm_read_ptx_sreg_nctaid_x() gridDim.x
#define __nvvm_bar_sync(i) __syncthreads()
#define __nvvm_bar0_or(p) __syncthreads_or(p)
#define __builtin_ctz(x) (__ffs(x) - 1)
