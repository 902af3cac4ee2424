#ifndef CONCERT_CUBLAS_H
#define CONCERT_CUBLAS_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t handle;

// cuBLAS by dlopen: the few calls a matrix product needs. Return codes are the
// library's or, negative, these.
enum { BLAS_NO_LIBRARY = -1, BLAS_NO_SYMBOL = -2 };
int blas_load(const char *path, char *why, size_t n);
int blas_create(handle ctx, handle *h, handle stream, handle workspace, size_t bytes);
int blas_destroy(handle ctx, handle h);
int blas_multiprocessors(handle ctx, handle h, int n);

// blas_matmul computes the row-major product c[m,n] = a[m,k] b[k,n] of bf16 with
// sums in f32.
int blas_matmul(handle ctx, handle h, int m, int n, int k, handle a, handle b, handle c);
#endif
