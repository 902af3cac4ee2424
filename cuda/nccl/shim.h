// What concert uses of NCCL's interface and of the CUDA driver's, declared by us so
// that neither is needed to build, and resolved at run time by dlopen.
#ifndef CONCERT_NCCL_SHIM_H
#define CONCERT_NCCL_SHIM_H
#include <stddef.h>
#include <stdint.h>

// Codes of our own, outside NCCL's range. NC_DRIVER - e is the driver's code e.
enum { NC_NOT_LOADED = -3, NC_BAD_CALL = -4, NC_DRIVER = -1000 };

typedef struct { // ncclUniqueId, passed by value
	char bytes[128];
} nc_id;

// ncclConfig_t as of 2.17. The library reads `size` bytes and takes defaults for
// fields that `version` does not have.
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking, cga, min_ctas, max_ctas;
	const char *net;
} nc_config;

typedef struct { // Call of library.go
	uint64_t kind, type, reduce, peer, send, recv, count;
} nc_call;

#define NC_FUNCTIONS(X)                                                                                       \
	X(version, "ncclGetVersion", (int *))                                                                 \
	X(unique_id, "ncclGetUniqueId", (nc_id *))                                                            \
	X(init, "ncclCommInitRankConfig", (void **, int, nc_id, int, nc_config *))                            \
	X(finalize, "ncclCommFinalize", (void *))                                                             \
	X(destroy, "ncclCommDestroy", (void *))                                                               \
	X(abort, "ncclCommAbort", (void *))                                                                   \
	X(async_error, "ncclCommGetAsyncError", (void *, int *))                                              \
	X(group_start, "ncclGroupStart", (void))                                                              \
	X(group_end, "ncclGroupEnd", (void))                                                                  \
	X(all_reduce, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *))              \
	X(broadcast, "ncclBroadcast", (const void *, void *, size_t, int, int, void *, void *))               \
	X(reduce, "ncclReduce", (const void *, void *, size_t, int, int, int, void *, void *))                \
	X(all_gather, "ncclAllGather", (const void *, void *, size_t, int, void *, void *))                   \
	X(reduce_scatter, "ncclReduceScatter", (const void *, void *, size_t, int, int, void *, void *))      \
	X(send, "ncclSend", (const void *, size_t, int, int, void *, void *))                                 \
	X(recv, "ncclRecv", (void *, size_t, int, int, void *, void *))

#define NC_DRIVER_FUNCTIONS(X)                                                                                \
	X(set_context, "cuCtxSetCurrent", (void *))                                                           \
	X(copy, "cuMemcpyAsync", (uint64_t, uint64_t, size_t, void *))                                        \
	X(zero, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, void *))

// nc_bind and nc_bind_driver resolve every symbol, and return the name of one that is
// missing.
const char *nc_bind(void *lib);
const char *nc_bind_driver(void *lib);

int nc_version(int *v);
int nc_unique_id(void *id);
int nc_init(uintptr_t ctx, uintptr_t *comm, int n, const void *id, int rank, int min_ctas, int max_ctas);
// nc_registers says whether the library has what registers memory.
int nc_registers(void);
int nc_register(uintptr_t ctx, uintptr_t comm, uintptr_t at, size_t n, uintptr_t *registration);
int nc_deregister(uintptr_t ctx, uintptr_t comm, uintptr_t registration);
int nc_finalize(uintptr_t ctx, uintptr_t comm);
int nc_destroy(uintptr_t ctx, uintptr_t comm);
int nc_abort(uintptr_t ctx, uintptr_t comm);
int nc_async_error(uintptr_t comm, int *state);
// nc_last_error gives the library's message, or an empty text where it has none.
const char *nc_last_error(uintptr_t comm);

// nc_submit runs n calls on stream in one crossing: copies and zeros as they come,
// then the rest as one group. failed is the index of the call that failed, n for
// the end of the group.
int nc_submit(uintptr_t ctx, uintptr_t comm, uintptr_t stream, const nc_call *calls, size_t n, size_t *failed);
#endif
