//go:build linux && cgo && (amd64 || arm64)

#include "shim.h"
#include "../driver/shim.h"
#include "../dl/bind.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	size_t (*version)(void);
	const char *(*status_text)(int);
	void (*last_error)(char *, size_t);
	int (*create_handle)(void **);
	int (*destroy_handle)(void *);
	int (*set_stream)(void *, void *);
	int (*create)(int, void **);
	int (*destroy)(void *);
	int (*set)(void *, int, int, int64_t, const void *);
	int (*get)(void *, int, int, int64_t, int64_t *, void *);
	int (*finalize)(void *);
	int (*execute)(void *, void *, void *);
	int (*set_context)(uint64_t);
} fn;
static int loaded;

const char *cd_bind_driver(void *lib)
{
	DL_BIND(fn, set_context, "cuCtxSetCurrent")
	return 0;
}

const char *cd_bind(void *lib)
{
	DL_BIND(fn, version, "cudnnGetVersion")
	DL_BIND(fn, status_text, "cudnnGetErrorString")
	DL_BIND(fn, last_error, "cudnnGetLastErrorString")
	DL_BIND(fn, create_handle, "cudnnCreate")
	DL_BIND(fn, destroy_handle, "cudnnDestroy")
	DL_BIND(fn, set_stream, "cudnnSetStream")
	DL_BIND(fn, create, "cudnnBackendCreateDescriptor")
	DL_BIND(fn, destroy, "cudnnBackendDestroyDescriptor")
	DL_BIND(fn, set, "cudnnBackendSetAttribute")
	DL_BIND(fn, get, "cudnnBackendGetAttribute")
	DL_BIND(fn, finalize, "cudnnBackendFinalize")
	DL_BIND(fn, execute, "cudnnBackendExecute")
	loaded = 1;
	return 0;
}

size_t cd_version(void) { return loaded ? fn.version() : 0; }
const char *cd_status_text(int status) { return loaded ? fn.status_text(status) : "not loaded"; }

void cd_last_error(char *text, size_t n)
{
	text[0] = 0;
	if (loaded)
		fn.last_error(text, n);
	text[n - 1] = 0;
}

int cd_context(uint64_t ctx)
{
	if (!fn.set_context)
		return CD_NOT_LOADED;
	int e = fn.set_context(ctx);
	return e ? CD_DRIVER - e : 0;
}

struct cd_handle {
	void *raw;
	pthread_mutex_t lock;
};

int cd_handle_new(uint64_t ctx, cd_handle **out)
{
	int e = loaded ? cd_context(ctx) : CD_NOT_LOADED;
	if (e)
		return e;
	cd_handle *h = calloc(1, sizeof *h);
	if (!h)
		return CD_DRIVER - 2; // out of memory
	if ((e = fn.create_handle(&h->raw))) {
		free(h);
		return e;
	}
	pthread_mutex_init(&h->lock, 0);
	*out = h;
	return 0;
}

int cd_handle_free(uint64_t ctx, cd_handle *h)
{
	int e = cd_context(ctx);
	if (!e)
		e = fn.destroy_handle(h->raw);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return e;
}

void *cd_handle_raw(cd_handle *h) { return h->raw; }

int cd_create(int kind, void **d) { return loaded ? fn.create(kind, d) : CD_NOT_LOADED; }
int cd_destroy(void *d) { return loaded ? fn.destroy(d) : CD_NOT_LOADED; }
int cd_set(void *d, int attr, int type, int64_t n, const void *v) { return loaded ? fn.set(d, attr, type, n, v) : CD_NOT_LOADED; }
int cd_finalize(void *d) { return loaded ? fn.finalize(d) : CD_NOT_LOADED; }

int cd_get(void *d, int attr, int type, int64_t n, int64_t *count, void *v)
{
	return loaded ? fn.get(d, attr, type, n, count, v) : CD_NOT_LOADED;
}

struct cd_step {
	cd_handle *handle;
	void *plan, *pack;
};

cd_step *cd_step_new(cd_handle *h, void *plan, void *pack)
{
	cd_step *s = malloc(sizeof *s);
	if (s)
		*s = (cd_step){h, plan, pack};
	return s;
}

void cd_step_free(cd_step *s) { free(s); }

// cd_run is a cc_call.
static int cd_run(handle stream, const uint64_t *args, size_t n)
{
	if (n != 1 || !args[0])
		return CC_BAD_COMMAND;
	cd_step *s = (cd_step *)(uintptr_t)args[0];
	pthread_mutex_lock(&s->handle->lock);
	int e = fn.set_stream(s->handle->raw, (void *)(uintptr_t)stream);
	if (!e)
		e = fn.execute(s->handle->raw, s->plan, s->pack);
	pthread_mutex_unlock(&s->handle->lock);
	return e ? CC_STATUS(e) : 0;
}

uint64_t cd_run_address(void) { return (uint64_t)(uintptr_t)(cc_call *)cd_run; }
