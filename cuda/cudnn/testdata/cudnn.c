// A stand-in for libcudnn.so.9 that checks how it is called: descriptors are made,
// set, finalised and destroyed in order, attributes have the type and count that
// cuDNN documents, and an execution gets finalised descriptors and a stream.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { MAGIC = 0x63646473 };

typedef struct desc {
	int magic, kind, final;
	int64_t uids, pointers, ops;
	uint64_t first; // of a pack: the first pointer
} desc;

static char last[512];
static void *stream;

static int fail(int status, const char *what, int attr)
{
	snprintf(last, sizeof last, "%s %d", what, attr);
	return status;
}

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int s) { return s == BAD_PARAM ? "BAD_PARAM" : s == NOT_SUPPORTED ? "NOT_SUPPORTED" : "OTHER"; }
void cudnnGetLastErrorString(char *s, size_t n) { snprintf(s, n, "%s", last); }

int cudnnCreate(void **h)
{
	*h = calloc(1, 8);
	return 0;
}

int cudnnDestroy(void *h)
{
	free(h);
	return 0;
}

int cudnnSetStream(void *h, void *s)
{
	stream = s;
	return h ? 0 : BAD_PARAM;
}

int cudnnBackendCreateDescriptor(int kind, void **d)
{
	desc *x = calloc(1, sizeof *x);
	x->magic = MAGIC;
	x->kind = kind;
	*d = x;
	return 0;
}

int cudnnBackendDestroyDescriptor(void *d)
{
	desc *x = d;
	if (x->magic != MAGIC)
		return fail(BAD_PARAM, "no descriptor", 0);
	memset(x, 0, sizeof *x);
	free(x);
	return 0;
}

// want is the type and the number of elements of an attribute; 0 elements are any. Tensors
// have 4 or 5 sizes, of which 2 or 3 are spatial.
enum { SIZES = -4, SPATIAL = -2 };
static const struct {
	int attr, type, n;
} want[] = {
	{0, 14, 1},    {1, 1, 1},     {9, 3, 1},	  {100, 1, 1},	 {101, 7, 1},	{102, 3, SPATIAL}, {103, 3, SPATIAL},
	{104, 3, SPATIAL}, {105, 3, SPATIAL}, {106, 3, 1}, {700, 4, 1}, {701, 4, 1}, {702, 15, 1}, {703, 15, 1}, {704, 15, 1},
	{705, 15, 1},  {706, 4, 1},   {707, 4, 1},   {708, 15, 1},	 {709, 15, 1},	{710, 15, 1},  {711, 15, 1},
	{712, 4, 1},   {713, 4, 1},   {714, 15, 1},  {715, 15, 1},	 {716, 15, 1},	{717, 15, 1},  {200, 8, 1},	 {201, 15, 1},	{203, 23, 1},  {400, 0, 1},
	{401, 15, 1},  {750, 15, 1},  {751, 15, 1},  {752, 15, 1},	 {753, 15, 1},	{754, 4, 1},   {755, 4, 1},
	{758, 15, 1},  {800, 0, 1},   {801, 15, 0},  {900, 3, 1},	 {901, 1, 1},	{902, 3, SIZES}, {903, 3, SIZES},
	{906, 3, 1},   {907, 2, 1},   {908, 2, 1},	  {1000, 3, 0},	 {1001, 6, 0},	{1003, 6, 1},  {1500, 1, 1},
	{1520, 15, 1}, {1521, 15, 1}, {1522, 15, 1}, {1523, 15, 1}, {1600, 18, 1}, {1601, 1, 1}, {1610, 15, 1},
	{1611, 15, 1}, {1612, 15, 1}, {2200, 15, 1}, {2201, 15, 1},
};

int cudnnBackendSetAttribute(void *d, int attr, int type, int64_t n, const void *v)
{
	desc *x = d;
	if (!x || x->magic != MAGIC || x->final || !v || n < 1)
		return fail(BAD_PARAM, "attribute out of order", attr);
	size_t i = 0;
	while (i < sizeof want / sizeof *want && want[i].attr != attr)
		i++;
	if (i == sizeof want / sizeof *want || want[i].type != type || (want[i].n > 0 && want[i].n != n) ||
	    (want[i].n < 0 && n != -want[i].n && n != 1 - want[i].n))
		return fail(BAD_PARAM, "type or count of attribute", attr);
	if (type == 15)
		for (int64_t k = 0; k < n; k++)
			if (((desc *const *)v)[k]->magic != MAGIC || (!((desc *const *)v)[k]->final && attr != 401))
				return fail(BAD_PARAM, "descriptor not finalised in attribute", attr);
	if (attr == 801)
		x->ops = n;
	if (attr == 1000)
		x->uids = n;
	if (attr == 1001) {
		x->pointers = n;
		x->first = ((const uint64_t *)v)[0];
	}
	return 0;
}

int cudnnBackendGetAttribute(void *d, int attr, int type, int64_t n, int64_t *count, void *v)
{
	desc *x = d;
	if (!x || x->magic != MAGIC)
		return fail(BAD_PARAM, "no descriptor", attr);
	*count = 1;
	switch (attr) {
	case 202: // two configurations
		for (int64_t k = 0; k < n && k < 2; k++)
			((desc **)v)[k]->final = 1 + (int)k;
		*count = 2;
		return type == 15 ? 0 : BAD_PARAM;
	case 300: // the engine of a configuration
		(*(desc **)v)->final = x->final;
		return 0;
	case 402:
		*(int64_t *)v = 4096;
		return 0;
	case 1301:
		*(int64_t *)v = x->final;
		return 0;
	case 1303: // the first engine is not reproducible
		*count = x->final == 1 ? 2 : 1;
		((int *)v)[0] = 0;
		((int *)v)[1] = 4;
		return type == 11 ? 0 : BAD_PARAM;
	}
	return fail(BAD_PARAM, "unknown attribute", attr);
}

int cudnnBackendFinalize(void *d)
{
	desc *x = d;
	if (x->magic != MAGIC || x->final)
		return fail(BAD_PARAM, "finalised twice", 0);
	if (x->kind == 16 && x->uids != x->pointers)
		return fail(BAD_PARAM, "as many ids as pointers", 0);
	if (x->kind == 15 && x->ops == 15) // a causal forward pass with a bias
		return fail(NOT_SUPPORTED, "no such pattern", 0);
	x->final = 1;
	return 0;
}

int cudnnBackendExecute(void *h, void *plan, void *pack)
{
	desc *p = plan, *q = pack;
	if (!h || p->magic != MAGIC || p->kind != 5 || !p->final || q->magic != MAGIC || q->kind != 16 || !q->final)
		return fail(BAD_PARAM, "bad execution", 0);
	return stream == (void *)7 ? 0 : NOT_SUPPORTED;
}
