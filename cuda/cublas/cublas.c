//go:build linux && cgo && (amd64 || arm64)

#include "cublas.h"
#include <dlfcn.h>
#include <stdio.h>

static struct {
	int (*set_context)(handle ctx);
	int (*create)(handle *h);
	int (*destroy)(handle h);
	int (*stream)(handle h, handle s);
	int (*workspace)(handle h, handle at, size_t bytes);
	int (*multiprocessors)(handle h, int n);
	int (*gemm)(handle h, int ta, int tb, int m, int n, int k, const void *alpha, handle a, int at, int lda, handle b,
		    int bt, int ldb, const void *beta, handle c, int ct, int ldc, int compute, int algo);
} fn;

int blas_load(const char *path, char *why, size_t n)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, n, "%s", dlerror());
		return BLAS_NO_LIBRARY;
	}
	struct {
		const char *name;
		void **at;
	} want[] = {
		{"cublasCreate_v2", (void **)&fn.create},	{"cublasDestroy_v2", (void **)&fn.destroy},
		{"cublasSetStream_v2", (void **)&fn.stream},	{"cublasSetWorkspace_v2", (void **)&fn.workspace},
		{"cublasGemmEx", (void **)&fn.gemm},		{"cublasSetSmCountTarget", (void **)&fn.multiprocessors},
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if (!(*want[i].at = dlsym(lib, want[i].name))) {
			snprintf(why, n, "%s", want[i].name);
			return BLAS_NO_SYMBOL;
		}
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); // the one that is open
	if (!cuda || !(*(void **)&fn.set_context = dlsym(cuda, "cuCtxSetCurrent"))) {
		snprintf(why, n, "cuCtxSetCurrent");
		return BLAS_NO_SYMBOL;
	}
	return 0;
}

int blas_create(handle ctx, handle *h, handle stream, handle workspace, size_t bytes)
{
	int e = fn.set_context(ctx);
	if (e || (e = fn.create(h)))
		return e;
	// Setting the stream resets the workspace, so the workspace comes second.
	if ((e = fn.stream(*h, stream)) || (e = fn.workspace(*h, workspace, bytes)))
		fn.destroy(*h);
	return e;
}

int blas_destroy(handle ctx, handle h)
{
	int e = fn.set_context(ctx);
	return e ? e : fn.destroy(h);
}

int blas_multiprocessors(handle ctx, handle h, int n)
{
	int e = fn.set_context(ctx);
	return e ? e : fn.multiprocessors(h, n);
}

int blas_matmul(handle ctx, handle h, int m, int n, int k, handle a, handle b, handle c)
{
	enum { BF16 = 14, COMPUTE_32F = 68, DEFAULT = -1 };
	const float one = 1, zero = 0;
	int e = fn.set_context(ctx);
	if (e)
		return e;
	// The library's matrices are column-major: the transposed product swaps the operands.
	return fn.gemm(h, 0, 0, n, m, k, &one, b, BF16, n, a, BF16, k, &zero, c, BF16, n, COMPUTE_32F, DEFAULT);
}
