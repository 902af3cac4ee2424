//go:build linux && cgo && (amd64 || arm64)

#include "shim.h"
#include "../dl/bind.h"
#include <stdlib.h>
#include <string.h>

#define FIELD(name, sym, params, args) int(*name) params;
static struct {
	CC_GLOBALS(FIELD)
	CC_FUNCTIONS(FIELD)
} fn;
static struct {
	CC_MULTICAST(FIELD)
} mc;
static struct {
	CC_CONDITIONAL(FIELD)
} cond;
static void *library; // the driver's, once it is loaded
static int loaded, multicast, conditional;

#define GLOBAL_WRAPPER(name, sym, params, args)                                                               \
	int cc_##name params { return loaded ? fn.name args : CC_NOT_LOADED; }
CC_GLOBALS(GLOBAL_WRAPPER)
CC_FUNCTIONS(GLOBAL_WRAPPER)

#define MULTICAST_WRAPPER(name, sym, params, args)                                                            \
	int cc_##name params { return multicast ? mc.name args : CC_NOT_LOADED; }
CC_MULTICAST(MULTICAST_WRAPPER)

#define CONDITIONAL_WRAPPER(name, sym, params, args)                                                          \
	int cc_##name params { return conditional ? cond.name args : CC_NOT_LOADED; }
CC_CONDITIONAL(CONDITIONAL_WRAPPER)

// cc_bind resolves every symbol, and returns the name of one that is missing.
const char *cc_bind(void *lib)
{
#define BIND(name, sym, params, args) DL_BIND(fn, name, sym)
	loaded = 0; // fn is incomplete until the end
	CC_GLOBALS(BIND)
	CC_FUNCTIONS(BIND)
	library = lib;
	loaded = 1;
	return 0;
}

// cc_bind_multicast resolves the functions of multicast objects in the loaded library, and
// returns the name of one that is missing. Not to be called twice at once.
const char *cc_bind_multicast(void)
{
	void *lib = library;
#define BIND_MULTICAST(name, sym, params, args) DL_BIND(mc, name, sym)
	CC_MULTICAST(BIND_MULTICAST)
	multicast = 1;
	return 0;
}

// cc_bind_conditional is cc_bind_multicast for the functions of conditional nodes.
const char *cc_bind_conditional(void)
{
	void *lib = library;
#define BIND_CONDITIONAL(name, sym, params, args) DL_BIND(cond, name, sym)
	CC_CONDITIONAL(BIND_CONDITIONAL)
	conditional = 1;
	return 0;
}

// captured asks for the graph that s is captured into, and what comes next would stand behind.
static int captured(handle s, handle *g, handle **deps, size_t *n)
{
	int status = 0;
	uint64_t id;
	int e = cc_stream_capture(s, &status, &id, g, deps, n);
	return e || status == 1 ? e : 901; // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
}

int cc_condition(handle ctx, handle s, uint64_t *h)
{
	handle g, *deps;
	size_t n;
	int e = captured(s, &g, &deps, &n);
	return e ? e : cc_condition_create(h, g, ctx, 0, 0);
}

int cc_divide(handle ctx, handle s, uint64_t by, int type, unsigned bodies, handle *g, handle *node, handle *out)
{
	handle into, ended, *deps, *behind;
	size_t n;
	int e = captured(s, &into, &deps, &n);
	if (e)
		return e;
	behind = malloc((n + 1) * sizeof *behind); // the driver's list ends with the capture
	if (!behind)
		return 2; // CUDA_ERROR_OUT_OF_MEMORY
	memcpy(behind, deps, n * sizeof *behind);
	cc_node p = {.type = 13 /* CU_GRAPH_NODE_TYPE_CONDITIONAL */};
	p.by = by, p.kind = type, p.bodies = bodies, p.ctx = ctx;
	e = cc_capture_end(s, &ended);
	if (!e) {
		*g = into; // the caller's from now on
		e = cc_add_node(node, into, behind, n, &p);
	}
	if (!e)
		memcpy(out, p.out, bodies * sizeof *out);
	free(behind);
	return e;
}

// cc_set_context makes ctx current on this thread. It asks the driver every time:
// other libraries in the process may have changed it, and the call is cheap.
int cc_set_context(handle ctx) { return cc_ctx_set(ctx); }

int cc_launch_buffer(handle ctx, handle f, unsigned grid, unsigned block, unsigned shared, handle stream, const void *buf,
                     size_t len)
{
	int e = cc_set_context(ctx);
	if (e)
		return e;
	void *extra[] = {(void *)1, (void *)buf, (void *)2, &len, (void *)0};
	return fn.launch(f, grid, 1, 1, block, 1, 1, shared, stream, 0, extra);
}

int cc_import_fd(handle *h, int fd) { return cc_vm_import(h, (void *)(uintptr_t)fd, 1); }

// The command words; commands.go writes them.
enum { OP_LAUNCH = 1, OP_RECORD, OP_WAIT, OP_COPY, OP_MEMSET32, OP_GRAPH, OP_FLAGS, OP_CALL, OP_LAUNCH_EARLY, OP_MARK, OP_LAUNCH_CLUSTER };

// Attributes of a launch.
enum { CLUSTER_DIMENSION = 4, PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

// flags writes words and waits for words, in order. Every write is fenced: the second
// version of the interface knows no other.
static int flags(handle stream, const uint64_t *w, size_t n)
{
	enum { WAIT_VALUE_32 = 1, WRITE_VALUE_32 = 2, MOST = 64 };
	cc_memop ops[MOST];
	int e = 0;
	while (!e && n > 0) {
		unsigned k = n < MOST ? (unsigned)n : MOST;
		memset(ops, 0, k * sizeof *ops);
		for (unsigned i = 0; i < k; i++, w += 2) {
			ops[i].operation = w[0] >> 32 ? WAIT_VALUE_32 : WRITE_VALUE_32;
			ops[i].value = (uint32_t)w[0];
			ops[i].address = w[1];
		}
		e = fn.stream_memops(stream, k, ops, 0);
		n -= k;
	}
	return e;
}

// launch_cluster launches with parameters one by one, each behind a word with its bytes.
static int launch_cluster(const uint64_t *a, size_t n)
{
	enum { MOST = 8 };
	void *params[MOST];
	size_t count = 0;
	for (size_t i = 4; i < n; i += 1 + (a[i] + 7) / 8) {
		if (count == MOST || a[i] > 4096 || i + 1 + (a[i] + 7) / 8 > n)
			return CC_BAD_COMMAND;
		params[count++] = (void *)(a + i + 1);
	}
	cc_attribute attrs[] = {{.id = CLUSTER_DIMENSION, .value = {(int)(a[2] >> 48), 1, 1}},
				{.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = {1}}};
	cc_config config = {.grid = {(unsigned)a[2], 1, 1}, .block = {(unsigned)(a[2] >> 32) & 0xffff, 1, 1},
			    .shared = (unsigned)a[3], .stream = a[0], .attrs = attrs, .count = a[3] >> 32 ? 2 : 1};
	return fn.launch_ex(&config, a[1], params, 0);
}

int cc_run(handle ctx, const uint64_t *w, size_t n, size_t *failed)
{
	int e = cc_set_context(ctx);
	size_t i = 0;
	while (!e && i < n) {
		size_t len = (size_t)(w[i] >> 8);
		*failed = i;
		if (len < 3 || i + len > n)
			return CC_BAD_COMMAND;
		const uint64_t *a = w + i + 1;
		switch (w[i] & 255) {
		case OP_LAUNCH: { // stream, function, grid|block<<32, shared|bytes<<32, parameters
			size_t bytes = len < 5 ? 0 : (size_t)(a[3] >> 32);
			if (len < 5 + (bytes + 7) / 8)
				return CC_BAD_COMMAND;
			void *extra[] = {(void *)1, (void *)(a + 4), (void *)2, &bytes, (void *)0};
			e = fn.launch(a[1], (unsigned)a[2], 1, 1, (unsigned)(a[2] >> 32), 1, 1, (unsigned)a[3], a[0], 0, extra);
			break;
		}
		case OP_LAUNCH_EARLY: { // as OP_LAUNCH
			size_t bytes = len < 5 ? 0 : (size_t)(a[3] >> 32);
			if (len < 5 + (bytes + 7) / 8)
				return CC_BAD_COMMAND;
			void *extra[] = {(void *)1, (void *)(a + 4), (void *)2, &bytes, (void *)0};
			cc_attribute attr = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = {1}};
			cc_config config = {.grid = {(unsigned)a[2], 1, 1}, .block = {(unsigned)(a[2] >> 32), 1, 1},
					    .shared = (unsigned)a[3], .stream = a[0], .attrs = &attr, .count = 1};
			e = fn.launch_ex(&config, a[1], 0, extra);
			break;
		}
		case OP_LAUNCH_CLUSTER: // stream, function, grid|block<<32|cluster<<48, shared|early<<32, then parameters
			e = len < 5 ? CC_BAD_COMMAND : launch_cluster(a, len - 1);
			break;
		case OP_RECORD: // stream, event
			e = fn.event_record(a[1], a[0]);
			break;
		case OP_MARK: // stream, event
			e = fn.event_record_flags(a[1], a[0], 1 /* CU_EVENT_RECORD_EXTERNAL */);
			break;
		case OP_WAIT: // stream, event
			e = fn.stream_wait(a[0], a[1], 0);
			break;
		case OP_COPY: // stream, to, from, bytes
			e = len < 5 ? CC_BAD_COMMAND : fn.copy(a[1], a[2], (size_t)a[3], a[0]);
			break;
		case OP_MEMSET32: // stream, to, value, words
			e = len < 5 ? CC_BAD_COMMAND : fn.memset32(a[1], (unsigned)a[2], (size_t)a[3], a[0]);
			break;
		case OP_GRAPH: // stream, executable graph
			e = fn.graph_launch(a[1], a[0]);
			break;
		case OP_FLAGS: // stream, then value|wait<<32 and address of each
			e = flags(a[0], a + 1, (len - 2) / 2);
			break;
		case OP_CALL: // stream, function, its words
			e = a[1] ? ((cc_call *)(uintptr_t)a[1])(a[0], a + 2, len - 3) : CC_BAD_COMMAND;
			break;
		default:
			return CC_BAD_COMMAND;
		}
		i += len;
	}
	return e;
}
