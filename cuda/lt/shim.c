//go:build linux && cgo && (amd64 || arm64)

#include "shim.h"
#include "../dl/bind.h"
#include <stdlib.h>
#include <string.h>

typedef struct { // cublasLtMatmulAlgo_t
	uint64_t data[8];
} algo_t;

typedef struct { // cublasLtMatmulHeuristicResult_t
	algo_t algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} result_t;

_Static_assert(sizeof(result_t) == 96, "layout of cublasLtMatmulHeuristicResult_t");

#define FUNCTIONS(X)                                                                                          \
	X(size_t, version, "cublasLtGetVersion", (void))                                                      \
	X(int, create, "cublasLtCreate", (void **))                                                           \
	X(int, destroy, "cublasLtDestroy", (void *))                                                          \
	X(int, layout, "cublasLtMatrixLayoutCreate", (void **, int, uint64_t, uint64_t, int64_t))             \
	X(int, layout_destroy, "cublasLtMatrixLayoutDestroy", (void *))                                       \
	X(int, layout_set, "cublasLtMatrixLayoutSetAttribute", (void *, int, const void *, size_t))           \
	X(int, desc, "cublasLtMatmulDescCreate", (void **, int, int))                                         \
	X(int, desc_destroy, "cublasLtMatmulDescDestroy", (void *))                                           \
	X(int, desc_set, "cublasLtMatmulDescSetAttribute", (void *, int, const void *, size_t))               \
	X(int, pref, "cublasLtMatmulPreferenceCreate", (void **))                                             \
	X(int, pref_destroy, "cublasLtMatmulPreferenceDestroy", (void *))                                     \
	X(int, pref_set, "cublasLtMatmulPreferenceSetAttribute", (void *, int, const void *, size_t))         \
	X(int, heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                   \
	  (void *, void *, void *, void *, void *, void *, void *, int, result_t *, int *))                   \
	X(int, algo_init, "cublasLtMatmulAlgoInit", (void *, int, int, int, int, int, int, int, algo_t *))    \
	X(int, algo_set, "cublasLtMatmulAlgoConfigSetAttribute", (algo_t *, int, const void *, size_t))       \
	X(int, algo_get, "cublasLtMatmulAlgoConfigGetAttribute", (const algo_t *, int, void *, size_t, size_t *)) \
	X(int, algo_check, "cublasLtMatmulAlgoCheck",                                                         \
	  (void *, void *, void *, void *, void *, void *, const algo_t *, result_t *))                       \
	X(int, matmul, "cublasLtMatmul",                                                                      \
	  (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, \
	   void *, void *, const algo_t *, void *, size_t, void *))

static struct {
#define FIELD(type, name, sym, params) type(*name) params;
	FUNCTIONS(FIELD)
	int (*set_context)(uint64_t);
} fn;

// Attributes by their numbers in the library's interface.
enum { LAYOUT_BATCH = 5, LAYOUT_STRIDE = 6 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8, DESC_SMS = 15 };
enum { PREF_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, PREF_ALIGN_B, PREF_ALIGN_C, PREF_ALIGN_D };
enum { ALGO_ID, ALGO_TILE, ALGO_SPLITK, ALGO_REDUCTION, ALGO_SWIZZLE, ALGO_CUSTOM, ALGO_STAGES, ALGO_INNER, ALGO_CLUSTER };

typedef struct {
	lt_problem p;
	void *handle, *desc, *x, *y, *d;
	algo_t algo;
	size_t workspace;
	union {
		float f32;
		double f64;
	} one, zero;
} plan_t;

const char *lt_bind(void *lib)
{
#define BIND(type, name, sym, params) DL_BIND(fn, name, sym)
	FUNCTIONS(BIND)
	return 0;
}

const char *lt_bind_driver(void *lib)
{
	DL_BIND(fn, set_context, "cuCtxSetCurrent")
	return 0;
}

static int enter(uint64_t ctx)
{
	int e = fn.set_context(ctx);
	return e ? LT_DRIVER - e : 0;
}

uint64_t lt_version(void) { return fn.version(); }

int lt_create(uint64_t ctx, uint64_t *h)
{
	void *p = NULL;
	int e = enter(ctx);
	if (!e && !(e = fn.create(&p)))
		*h = (uint64_t)(uintptr_t)p;
	return e;
}

int lt_destroy(uint64_t ctx, uint64_t h)
{
	int e = enter(ctx);
	return e ? e : fn.destroy((void *)(uintptr_t)h);
}

static int layout(void **out, const lt_matrix *m, int32_t batch)
{
	int e = fn.layout(out, m->type, m->rows, m->cols, m->ld);
	if (!e && batch > 1) {
		e = fn.layout_set(*out, LAYOUT_BATCH, &batch, sizeof batch);
		if (!e)
			e = fn.layout_set(*out, LAYOUT_STRIDE, &m->stride, sizeof m->stride);
	}
	return e;
}

void lt_plan_free(uint64_t plan)
{
	plan_t *l = (plan_t *)(uintptr_t)plan;
	if (l->x)
		fn.layout_destroy(l->x);
	if (l->y)
		fn.layout_destroy(l->y);
	if (l->d)
		fn.layout_destroy(l->d);
	if (l->desc)
		fn.desc_destroy(l->desc);
	free(l);
}

int lt_plan(uint64_t ctx, uint64_t h, const lt_problem *p, uint64_t *plan)
{
	enum { R_64F = 1 };
	const int32_t epilogue = 4; // CUBLASLT_EPILOGUE_BIAS, of the type of D
	int e = enter(ctx);
	if (e)
		return e;
	plan_t *l = calloc(1, sizeof *l);
	if (!l)
		return LT_NO_MEMORY;
	l->p = *p;
	l->handle = (void *)(uintptr_t)h;
	if (p->scale == R_64F)
		l->one.f64 = 1;
	else
		l->one.f32 = 1;
	if ((e = fn.desc(&l->desc, p->compute, p->scale)) ||
	    (e = fn.desc_set(l->desc, DESC_TRANSA, &p->trans_x, sizeof p->trans_x)) ||
	    (e = fn.desc_set(l->desc, DESC_TRANSB, &p->trans_y, sizeof p->trans_y)) ||
	    (p->sms && (e = fn.desc_set(l->desc, DESC_SMS, &p->sms, sizeof p->sms))) ||
	    (p->bias && ((e = fn.desc_set(l->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue)) ||
			 (e = fn.desc_set(l->desc, DESC_BIAS, &p->bias, sizeof p->bias)))) || (e = layout(&l->x, &p->x, p->batch)) ||
	    (e = layout(&l->y, &p->y, p->batch)) || (e = layout(&l->d, &p->d, p->batch))) {
		lt_plan_free((uint64_t)(uintptr_t)l);
		return e;
	}
	*plan = (uint64_t)(uintptr_t)l;
	return 0;
}

// config moves the attributes of an algorithm in or out. An attribute that the
// library does not know for this algorithm reads as zero, and is not written then.
static int config(algo_t *a, lt_algo *c, int set)
{
	struct {
		int attr, bytes;
		void *at;
	} want[] = {
		{ALGO_TILE, 4, &c->tile},	  {ALGO_STAGES, 4, &c->stages},	  {ALGO_SPLITK, 4, &c->splitk},
		{ALGO_REDUCTION, 4, &c->reduction}, {ALGO_SWIZZLE, 4, &c->swizzle}, {ALGO_CUSTOM, 4, &c->custom},
		{ALGO_INNER, 2, &c->inner},	  {ALGO_CLUSTER, 2, &c->cluster},
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		size_t got = 0;
		uint32_t v = 0; // little-endian: a value of two bytes is in place
		memcpy(&v, want[i].at, sizeof v);
		if (!set) {
			v = 0;
			if (fn.algo_get(a, want[i].attr, &v, want[i].bytes, &got))
				v = 0;
			memcpy(want[i].at, &v, sizeof v);
			continue;
		}
		int e = fn.algo_set(a, want[i].attr, &v, want[i].bytes);
		if (e && v)
			return e;
	}
	size_t got = 0;
	return set ? 0 : fn.algo_get(a, ALGO_ID, &c->id, sizeof c->id, &got);
}

int lt_heuristics(uint64_t ctx, uint64_t plan, uint64_t limit, lt_algo *out, int n, int *found)
{
	enum { COMPUTE_TYPE = 2 };
	plan_t *l = (plan_t *)(uintptr_t)plan;
	void *pref = NULL;
	*found = 0;
	int e = enter(ctx);
	if (e)
		return e;
	result_t *res = calloc((size_t)n, sizeof *res);
	if (!res)
		return LT_NO_MEMORY;
	// Parts of a sum are added in f32 in the workspace and in a fixed order, or not at all.
	uint32_t reduction = COMPUTE_TYPE;
	if ((e = fn.pref(&pref)) || (e = fn.pref_set(pref, PREF_WORKSPACE, &limit, sizeof limit)) ||
	    (e = fn.pref_set(pref, PREF_REDUCTION, &reduction, sizeof reduction)) ||
	    (e = fn.pref_set(pref, PREF_ALIGN_A, &l->p.x.align, 4)) || (e = fn.pref_set(pref, PREF_ALIGN_B, &l->p.y.align, 4)) ||
	    (e = fn.pref_set(pref, PREF_ALIGN_C, &l->p.d.align, 4)) || (e = fn.pref_set(pref, PREF_ALIGN_D, &l->p.d.align, 4)))
		goto end;
	int got = 0;
	if ((e = fn.heuristic(l->handle, l->desc, l->x, l->y, l->d, l->d, pref, n, res, &got)))
		goto end;
	for (int i = 0; i < got; i++) {
		lt_algo *o = &out[*found];
		memset(o, 0, sizeof *o);
		if (res[i].state || config(&res[i].algo, o, 0) || (o->reduction & ~(uint32_t)COMPUTE_TYPE))
			continue;
		o->waves = res[i].waves;
		o->workspace = res[i].workspace;
		memcpy(o->raw, res[i].algo.data, sizeof o->raw);
		++*found;
	}
end:
	if (pref)
		fn.pref_destroy(pref);
	free(res);
	return e;
}

int lt_use(uint64_t ctx, uint64_t plan, lt_algo *a, int raw)
{
	plan_t *l = (plan_t *)(uintptr_t)plan;
	algo_t algo;
	result_t res = {0};
	int e = enter(ctx);
	if (e)
		return e;
	if (raw)
		memcpy(algo.data, a->raw, sizeof algo.data);
	else if ((e = fn.algo_init(l->handle, l->p.compute, l->p.scale, l->p.x.type, l->p.y.type, l->p.d.type, l->p.d.type, a->id,
				   &algo)) ||
		 (e = config(&algo, a, 1)))
		return e;
	if ((e = fn.algo_check(l->handle, l->desc, l->x, l->y, l->d, l->d, &algo, &res)) || (e = res.state))
		return e;
	l->algo = algo;
	l->workspace = res.workspace;
	a->waves = res.waves;
	a->workspace = res.workspace;
	memcpy(a->raw, algo.data, sizeof a->raw);
	return 0;
}

static int call(uint64_t stream, const uint64_t *w, size_t n)
{
	enum { INVALID_VALUE = 7 };
	plan_t *l = (plan_t *)(uintptr_t)w[0];
	int e = INVALID_VALUE;
	if (n == 6 && w[5] >= l->workspace)
		e = fn.matmul(l->handle, l->desc, &l->one, (void *)(uintptr_t)w[1], l->x, (void *)(uintptr_t)w[2], l->y, &l->zero,
			      (void *)(uintptr_t)w[3], l->d, (void *)(uintptr_t)w[3], l->d, &l->algo,
			      (void *)(uintptr_t)w[4], w[5], (void *)(uintptr_t)stream);
	return e ? LT_STATUS - e : 0;
}

uint64_t lt_call(void) { return (uint64_t)(uintptr_t)&call; }
