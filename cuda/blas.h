#ifndef CONCERT_BLAS_H
#define CONCERT_BLAS_H
#include "shim.h"

// cuBLAS by dlopen: the few calls a matrix product needs. Return codes are the
// library's, or the loader's of shim.h.
int cc_blas_load(const char *path, char *why, size_t n);
int cc_blas_create(handle ctx, handle *h, handle stream, handle workspace, size_t bytes);
int cc_blas_destroy(handle ctx, handle h);
int cc_blas_multiprocessors(handle ctx, handle h, int n);

// cc_blas_matmul computes the row-major product c[m,n] = a[m,k] b[k,n] of bf16 with
// sums in f32.
int cc_blas_matmul(handle ctx, handle h, int m, int n, int k, handle a, handle b, handle c);
#endif
