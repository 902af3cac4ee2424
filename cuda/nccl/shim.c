//go:build linux && cgo && (amd64 || arm64)

#include "shim.h"
#include "../dl/bind.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name, sym, params) int(*name) params;
static struct {
	NC_FUNCTIONS(FIELD)
	// Optional:
	const char *(*last_error)(void *); // since 2.13
	int (*enroll)(void *, void *, size_t, void **), (*withdraw)(void *, void *); // since 2.19
} fn;
static struct {
	NC_DRIVER_FUNCTIONS(FIELD)
} drv;
static int loaded, driver_loaded;

const char *nc_bind(void *lib)
{
#define BIND(name, sym, params) DL_BIND(fn, name, sym)
	NC_FUNCTIONS(BIND)
	*(void **)&fn.last_error = dlsym(lib, "ncclGetLastError");
	*(void **)&fn.enroll = dlsym(lib, "ncclCommRegister");
	*(void **)&fn.withdraw = dlsym(lib, "ncclCommDeregister");
	loaded = 1;
	return 0;
}

const char *nc_bind_driver(void *lib)
{
#define BIND_DRIVER(name, sym, params) DL_BIND(drv, name, sym)
	NC_DRIVER_FUNCTIONS(BIND_DRIVER)
	driver_loaded = 1;
	return 0;
}

// enter makes ctx current on this thread; NCCL takes its device from there.
static int enter(uintptr_t ctx)
{
	if (!loaded || !driver_loaded)
		return NC_NOT_LOADED;
	int e = ctx ? drv.set_context((void *)ctx) : 0;
	return e ? NC_DRIVER - e : 0;
}

int nc_version(int *v) { return loaded ? fn.version(v) : NC_NOT_LOADED; }
int nc_unique_id(void *id) { return loaded ? fn.unique_id((nc_id *)id) : NC_NOT_LOADED; }

int nc_init(uintptr_t ctx, uintptr_t *comm, int n, const void *id, int rank, int min_ctas, int max_ctas)
{
	int e = enter(ctx);
	if (e)
		return e;
	nc_config c = {sizeof c, 0xcafebeefu, 21700, 0, INT_MIN, min_ctas ? min_ctas : INT_MIN, max_ctas ? max_ctas : INT_MIN, 0};
	nc_id i;
	memcpy(&i, id, sizeof i);
	void *h = 0;
	e = fn.init(&h, n, i, rank, &c);
	*comm = (uintptr_t)h;
	return e;
}

#define ON_COMM(name)                                                                                         \
	int nc_##name(uintptr_t ctx, uintptr_t comm)                                                          \
	{                                                                                                     \
		int e = enter(ctx);                                                                           \
		return e ? e : fn.name((void *)comm);                                                         \
	}
ON_COMM(finalize)
ON_COMM(destroy)
ON_COMM(abort)

int nc_registers(void) { return fn.enroll && fn.withdraw; }

int nc_register(uintptr_t ctx, uintptr_t comm, uintptr_t at, size_t n, uintptr_t *registration)
{
	int e = enter(ctx);
	if (e || !nc_registers())
		return e ? e : NC_NOT_LOADED;
	void *h = 0;
	e = fn.enroll((void *)comm, (void *)at, n, &h);
	*registration = (uintptr_t)h;
	return e;
}

int nc_deregister(uintptr_t ctx, uintptr_t comm, uintptr_t registration)
{
	int e = enter(ctx);
	if (e || !nc_registers())
		return e ? e : NC_NOT_LOADED;
	return fn.withdraw((void *)comm, (void *)registration);
}

int nc_async_error(uintptr_t comm, int *state)
{
	return loaded ? fn.async_error((void *)comm, state) : NC_NOT_LOADED;
}

const char *nc_last_error(uintptr_t comm)
{
	const char *s = loaded && fn.last_error ? fn.last_error((void *)comm) : 0;
	return s ? s : "";
}

enum { COPY, ZERO, ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

static int one(const nc_call *c, void *comm, void *s)
{
	const void *from = (const void *)(uintptr_t)c->send;
	void *to = (void *)(uintptr_t)c->recv;
	int type = (int)c->type, op = (int)c->reduce, peer = (int)c->peer;
	switch (c->kind) {
	case ALL_REDUCE:
		return fn.all_reduce(from, to, c->count, type, op, comm, s);
	case BROADCAST:
		return fn.broadcast(from, to, c->count, type, peer, comm, s);
	case REDUCE:
		return fn.reduce(from, to, c->count, type, op, peer, comm, s);
	case ALL_GATHER:
		return fn.all_gather(from, to, c->count, type, comm, s);
	case REDUCE_SCATTER:
		return fn.reduce_scatter(from, to, c->count, type, op, comm, s);
	case SEND:
		return fn.send(from, c->count, type, peer, comm, s);
	case RECV:
		return fn.recv(to, c->count, type, peer, comm, s);
	}
	return NC_BAD_CALL;
}

int nc_submit(uintptr_t ctx, uintptr_t comm, uintptr_t stream, const nc_call *calls, size_t n, size_t *failed)
{
	*failed = n;
	int e = enter(ctx);
	if (e)
		return e;
	void *s = (void *)stream;
	size_t i = 0;
	for (; i < n && calls[i].kind <= ZERO; i++) {
		const nc_call *c = calls + i;
		e = c->kind == COPY ? drv.copy(c->recv, c->send, c->count, s) : drv.zero(c->recv, 0, c->count, s);
		if (e) {
			*failed = i;
			return NC_DRIVER - e;
		}
	}
	if (i == n)
		return 0;
	if ((e = fn.group_start()))
		return e;
	for (; i < n; i++) {
		e = one(calls + i, (void *)comm, s);
		if (e && e != 7) { // in progress is no failure
			*failed = i;
			fn.group_end(); // the library remembers the error and drops the group
			return e;
		}
	}
	return fn.group_end();
}
