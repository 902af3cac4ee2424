// The part of the CUDA driver's interface that concert uses, declared by us so
// that no toolkit is needed to build, and resolved at run time by dlopen.
#ifndef CONCERT_CUDA_SHIM_H
#define CONCERT_CUDA_SHIM_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t handle; // contexts, streams, events, modules, functions, graphs, memory, addresses

// Codes of our own, outside the driver's range.
enum { CC_NOT_LOADED = -3, CC_BAD_COMMAND = -4 };

typedef struct { // CUmemLocation
	int type, id;
} cc_location;
typedef struct { // CUmemAllocationProp
	int type, handleTypes;
	cc_location location;
	void *win32;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
} cc_alloc_prop;
typedef struct { // CUmemAccessDesc
	cc_location location;
	int flags;
} cc_access;

typedef struct { // CUmulticastObjectProp
	unsigned devices;
	size_t bytes;
	unsigned long long handleTypes, flags;
} cc_multicast_prop;

typedef union { // CUstreamBatchMemOpParams
	struct {
		int operation, pad;
		handle address;
		uint64_t value;
		unsigned flags, pad2;
		handle alias;
	};
	uint64_t all[6];
} cc_memop;

typedef struct { // CUlaunchAttribute
	int id, pad;
	int value[16];
} cc_attribute;
typedef struct { // CUlaunchConfig
	unsigned grid[3], block[3], shared;
	handle stream;
	cc_attribute *attrs;
	unsigned count;
} cc_config;

typedef struct { // CUgraphNodeParams of a conditional node
	int type, pad[3];
	union {
		struct { // CUDA_CONDITIONAL_NODE_PARAMS
			uint64_t by;
			int kind;
			unsigned bodies;
			handle *out;
			handle ctx;
		};
		int64_t all[29];
	};
	int64_t reserved;
} cc_node;

// X(name, symbol, parameter list, argument list): every driver function behind a
// context; cc_NAME sets the context, then calls it.
#define CC_FUNCTIONS(X)                                                                                       \
	X(ctx_sync, "cuCtxSynchronize", (void), ())                                                           \
	X(ctx_limit, "cuCtxGetLimit", (size_t * n, int limit), (n, limit))                                    \
	X(ctx_set_limit, "cuCtxSetLimit", (int limit, size_t n), (limit, n))                                  \
	X(stream_create, "cuStreamCreateWithPriority", (handle * s, unsigned flags, int priority), (s, flags, priority)) \
	X(stream_destroy, "cuStreamDestroy_v2", (handle s), (s))                                              \
	X(stream_sync, "cuStreamSynchronize", (handle s), (s))                                                \
	X(stream_query, "cuStreamQuery", (handle s), (s))                                                     \
	X(stream_wait, "cuStreamWaitEvent", (handle s, handle e, unsigned flags), (s, e, flags))              \
	X(stream_write32, "cuStreamWriteValue32_v2", (handle s, handle a, uint32_t v, unsigned f), (s, a, v, f)) \
	X(stream_wait32, "cuStreamWaitValue32_v2", (handle s, handle a, uint32_t v, unsigned f), (s, a, v, f)) \
	X(stream_memops, "cuStreamBatchMemOp_v2", (handle s, unsigned n, cc_memop *ops, unsigned flags), (s, n, ops, flags)) \
	X(event_create, "cuEventCreate", (handle * e, unsigned flags), (e, flags))                            \
	X(event_destroy, "cuEventDestroy_v2", (handle e), (e))                                                \
	X(event_record, "cuEventRecord", (handle e, handle s), (e, s))                                        \
	X(event_record_flags, "cuEventRecordWithFlags", (handle e, handle s, unsigned flags), (e, s, flags))  \
	X(event_query, "cuEventQuery", (handle e), (e))                                                       \
	X(event_elapsed, "cuEventElapsedTime", (float *ms, handle a, handle b), (ms, a, b))                   \
	X(mem_alloc, "cuMemAlloc_v2", (handle * p, size_t n), (p, n))                                         \
	X(mem_free, "cuMemFree_v2", (handle p), (p))                                                          \
	X(mem_info, "cuMemGetInfo_v2", (size_t * free_, size_t *total), (free_, total))                       \
	X(host_alloc, "cuMemHostAlloc", (handle * p, size_t n, unsigned flags), (p, n, flags))                \
	X(host_free, "cuMemFreeHost", (handle p), (p))                                                        \
	X(host_device_ptr, "cuMemHostGetDevicePointer_v2", (handle * d, handle p, unsigned f), (d, p, f))     \
	X(copy_in, "cuMemcpyHtoDAsync_v2", (handle d, const void *h, size_t n, handle s), (d, h, n, s))       \
	X(copy_out, "cuMemcpyDtoHAsync_v2", (void *h, handle d, size_t n, handle s), (h, d, n, s))            \
	X(copy, "cuMemcpyAsync", (handle d, handle f, size_t n, handle s), (d, f, n, s))                      \
	X(memset32, "cuMemsetD32Async", (handle d, unsigned v, size_t n, handle s), (d, v, n, s))             \
	X(vm_granularity, "cuMemGetAllocationGranularity", (size_t * g, const cc_alloc_prop *p, int o), (g, p, o)) \
	X(vm_reserve, "cuMemAddressReserve", (handle * p, size_t n, size_t align, handle at, uint64_t f), (p, n, align, at, f)) \
	X(vm_unreserve, "cuMemAddressFree", (handle p, size_t n), (p, n))                                     \
	X(vm_create, "cuMemCreate", (handle * h, size_t n, const cc_alloc_prop *p, uint64_t f), (h, n, p, f)) \
	X(vm_release, "cuMemRelease", (handle h), (h))                                                        \
	X(vm_map, "cuMemMap", (handle p, size_t n, size_t off, handle h, uint64_t f), (p, n, off, h, f))      \
	X(vm_unmap, "cuMemUnmap", (handle p, size_t n), (p, n))                                               \
	X(vm_access, "cuMemSetAccess", (handle p, size_t n, const cc_access *d, size_t c), (p, n, d, c))      \
	X(vm_export, "cuMemExportToShareableHandle", (void *out, handle h, int type, uint64_t f), (out, h, type, f)) \
	X(vm_import, "cuMemImportFromShareableHandle", (handle * h, void *os, int type), (h, os, type))       \
	X(module_load, "cuModuleLoadDataEx", (handle * m, const void *img, unsigned n, int *o, void **v), (m, img, n, o, v)) \
	X(module_unload, "cuModuleUnload", (handle m), (m))                                                   \
	X(module_function, "cuModuleGetFunction", (handle * f, handle m, const char *name), (f, m, name))     \
	X(function_get, "cuFuncGetAttribute", (int *v, int attr, handle f), (v, attr, f))                     \
	X(function_set, "cuFuncSetAttribute", (handle f, int attr, int v), (f, attr, v))                      \
	X(launch, "cuLaunchKernel",                                                                           \
	  (handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, handle s, \
	   void **params, void **extra),                                                                      \
	  (f, gx, gy, gz, bx, by, bz, sh, s, params, extra))                                                  \
	X(tensor_map, "cuTensorMapEncodeTiled",                                                               \
	  (void *map, int type, unsigned rank, handle at, const uint64_t *sizes, const uint64_t *strides, const unsigned *box, \
	   const unsigned *steps, int interleave, int swizzle, int promotion, int fill),                     \
	  (map, type, rank, at, sizes, strides, box, steps, interleave, swizzle, promotion, fill))            \
	X(launch_ex, "cuLaunchKernelEx", (const cc_config *c, handle f, void **params, void **extra), (c, f, params, extra)) \
	X(capture_begin, "cuStreamBeginCapture_v2", (handle s, int mode), (s, mode))                          \
	X(capture_end, "cuStreamEndCapture", (handle s, handle *g), (s, g))                                   \
	X(stream_capture, "cuStreamGetCaptureInfo_v2",                                                        \
	  (handle s, int *status, uint64_t *id, handle *graph, void *deps, size_t *ndeps), (s, status, id, graph, deps, ndeps)) \
	X(graph_instantiate, "cuGraphInstantiateWithFlags", (handle * x, handle g, uint64_t f), (x, g, f))    \
	X(graph_upload, "cuGraphUpload", (handle x, handle s), (x, s))                                        \
	X(graph_launch, "cuGraphLaunch", (handle x, handle s), (x, s))                                        \
	X(graph_exec_destroy, "cuGraphExecDestroy", (handle x), (x))                                          \
	X(graph_destroy, "cuGraphDestroy", (handle g), (g))

// Functions that need no context.
#define CC_GLOBALS(X)                                                                                         \
	X(init, "cuInit", (unsigned flags), (flags))                                                          \
	X(version, "cuDriverGetVersion", (int *v), (v))                                                       \
	X(device_count, "cuDeviceGetCount", (int *n), (n))                                                    \
	X(device_get, "cuDeviceGet", (int *d, int i), (d, i))                                                 \
	X(device_name, "cuDeviceGetName", (char *s, int n, int d), (s, n, d))                                 \
	X(device_uuid, "cuDeviceGetUuid_v2", (void *u, int d), (u, d))                                        \
	X(device_attr, "cuDeviceGetAttribute", (int *v, int attr, int d), (v, attr, d))                       \
	X(device_mem, "cuDeviceTotalMem_v2", (size_t * n, int d), (n, d))                                     \
	X(device_peer, "cuDeviceCanAccessPeer", (int *ok, int a, int b), (ok, a, b))                          \
	X(ctx_retain, "cuDevicePrimaryCtxRetain", (handle * c, int d), (c, d))                                \
	X(ctx_release, "cuDevicePrimaryCtxRelease_v2", (int d), (d))                                          \
	X(ctx_set, "cuCtxSetCurrent", (handle c), (c))                                                        \
	X(error_name, "cuGetErrorName", (int e, const char **s), (e, s))                                      \
	X(error_text, "cuGetErrorString", (int e, const char **s), (e, s))

// Functions of multicast objects, which cc_bind leaves alone: cc_bind_multicast resolves
// them when somebody asks for multicast.
#define CC_MULTICAST(X)                                                                                       \
	X(mc_create, "cuMulticastCreate", (handle * h, const cc_multicast_prop *p), (h, p))                   \
	X(mc_add, "cuMulticastAddDevice", (handle h, int dev), (h, dev))                                      \
	X(mc_bind, "cuMulticastBindMem",                                                                      \
	  (handle h, size_t off, handle mem, size_t memoff, size_t n, uint64_t flags), (h, off, mem, memoff, n, flags)) \
	X(mc_unbind, "cuMulticastUnbind", (handle h, int dev, size_t off, size_t n), (h, dev, off, n))        \
	X(mc_granularity, "cuMulticastGetGranularity", (size_t * g, const cc_multicast_prop *p, int o), (g, p, o))

// Functions of conditional nodes, which cc_bind_conditional resolves in the same way.
#define CC_CONDITIONAL(X)                                                                                     \
	X(condition_create, "cuGraphConditionalHandleCreate",                                                 \
	  (uint64_t * h, handle g, handle ctx, unsigned initial, unsigned flags), (h, g, ctx, initial, flags)) \
	X(add_node, "cuGraphAddNode", (handle * node, handle g, const handle *deps, size_t n, void *params), (node, g, deps, n, params)) \
	X(begin_into, "cuStreamBeginCaptureToGraph",                                                          \
	  (handle s, handle g, const handle *deps, const void *data, size_t n, int mode), (s, g, deps, data, n, mode))

#define CC_STRIP(...) __VA_ARGS__
#define CC_DECLARE_GLOBAL(name, sym, params, args) int cc_##name params;
CC_GLOBALS(CC_DECLARE_GLOBAL)
const char *cc_bind(void *lib);
int cc_set_context(handle ctx);

// Every function of CC_FUNCTIONS is called as cc_NAME after cc_set_context on the
// same thread.
#define CC_DECLARE(name, sym, params, args) int cc_##name params;
CC_FUNCTIONS(CC_DECLARE)
CC_MULTICAST(CC_DECLARE)
const char *cc_bind_multicast(void);
CC_CONDITIONAL(CC_DECLARE)
const char *cc_bind_conditional(void);

// cc_condition makes a number of the graph that s is captured into.
int cc_condition(handle ctx, handle s, uint64_t *h);

// cc_divide ends the capture of s and adds a conditional node behind what it was given: the
// graph, the node, and its bodies.
int cc_divide(handle ctx, handle s, uint64_t by, int type, unsigned bodies, handle *g, handle *node, handle *out);

// cc_launch_buffer launches with one packed parameter buffer.
int cc_launch_buffer(handle ctx, handle f, unsigned grid, unsigned block, unsigned shared, handle stream, const void *buf,
                     size_t len);

// cc_import_fd imports memory that another process exported as fd.
int cc_import_fd(handle *h, int fd);

// cc_run interprets a packed command buffer of words: see commands.go.
int cc_run(handle ctx, const uint64_t *words, size_t n, size_t *failed);

// cc_call is a function that a command buffer calls with the stream and n words. The
// context is current. It may only enqueue work on the stream, which may be
// capturing: no allocation on the device, no synchronisation. args is valid during
// the call. It returns 0, a code of the driver, or CC_STATUS of a library's status.
typedef int cc_call(handle stream, const uint64_t *args, size_t n);
#define CC_STATUS(s) (-1000 - (s))

// Atomic access to words that a device or another process shares.
static inline uint32_t cc_load32(handle p) { return __atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE); }
static inline void cc_store32(handle p, uint32_t v) { __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE); }
#endif
