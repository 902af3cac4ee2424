// What concert uses of cuBLASLt's interface, declared by us so that no toolkit is
// needed to build, and resolved at run time by dlopen.
#ifndef CONCERT_LT_SHIM_H
#define CONCERT_LT_SHIM_H
#include <stddef.h>
#include <stdint.h>

// Codes of our own, outside the library's range. A driver's code e is LT_DRIVER - e.
// A status s of the library in a command buffer is LT_STATUS - s, as the command
// buffer's contract asks.
enum { LT_NO_MEMORY = -3, LT_DRIVER = -1000, LT_STATUS = -1000 };

typedef struct { // a matrix as it lies in memory: column-major
	uint64_t rows, cols;
	int64_t ld, stride; // elements; stride from one product of a batch to the next
	int32_t type;       // cudaDataType
	uint32_t align;     // bytes that the addresses are multiples of
} lt_matrix;

typedef struct { // D = op(X) op(Y) + bias
	lt_matrix x, y, d;
	int32_t trans_x, trans_y; // cublasOperation_t
	int32_t compute, scale;   // cublasComputeType_t, cudaDataType of alpha and beta
	int32_t batch, sms;
	uint64_t bias; // address of a number for each row of D, or 0
} lt_problem;

typedef struct { // one algorithm of the library: its attributes and its own form
	int32_t id;
	uint32_t tile, stages, splitk, reduction, swizzle, custom, inner, cluster;
	float waves;
	uint64_t workspace;
	uint64_t raw[8];
} lt_algo;

// lt_bind and lt_bind_driver resolve every symbol, and return the name of one that is
// missing.
const char *lt_bind(void *lib);
const char *lt_bind_driver(void *lib);
uint64_t lt_version(void);
int lt_create(uint64_t ctx, uint64_t *h);
int lt_destroy(uint64_t ctx, uint64_t h);

// lt_plan makes the descriptors of a problem. The plan has no algorithm yet.
int lt_plan(uint64_t ctx, uint64_t h, const lt_problem *p, uint64_t *plan);
void lt_plan_free(uint64_t plan);

// lt_heuristics gives up to n algorithms, the library's favourite first, that need
// at most limit bytes of workspace and are the same in every run.
int lt_heuristics(uint64_t ctx, uint64_t plan, uint64_t limit, lt_algo *out, int n, int *found);

// lt_use makes a the plan's algorithm: built from its attributes, or from its own
// form if raw is set. It fills in waves, workspace and raw.
int lt_use(uint64_t ctx, uint64_t plan, lt_algo *a, int raw);

// lt_call gives the address of the function for command buffers. Its words: plan,
// X, Y, D, workspace, its bytes.
uint64_t lt_call(void);
#endif
