// The part of cuDNN 9's interface that concert uses, declared by us and resolved at
// run time by dlopen: the backend's descriptors, and handles.
#ifndef CONCERT_CUDNN_SHIM_H
#define CONCERT_CUDNN_SHIM_H
#include <stddef.h>
#include <stdint.h>

// Codes of our own, outside the library's range.
enum { CD_NOT_LOADED = -3, CD_DRIVER = -100000 }; // driver codes c are CD_DRIVER - c

// cd_bind and cd_bind_driver resolve every symbol, and return the name of one that is
// missing.
const char *cd_bind(void *lib);
const char *cd_bind_driver(void *lib);
size_t cd_version(void);
const char *cd_status_text(int status);
void cd_last_error(char *text, size_t n);

// cd_context makes a context of the driver current on this thread.
int cd_context(uint64_t ctx);

// A handle and a lock: cuDNN's handles are for one thread at a time, and the stream
// is a property of the handle.
typedef struct cd_handle cd_handle;
int cd_handle_new(uint64_t ctx, cd_handle **h);
int cd_handle_free(uint64_t ctx, cd_handle *h);
void *cd_handle_raw(cd_handle *h);

int cd_create(int kind, void **d);
int cd_destroy(void *d);
int cd_set(void *d, int attr, int type, int64_t n, const void *v);
int cd_get(void *d, int attr, int type, int64_t n, int64_t *count, void *v);
int cd_finalize(void *d);

// A step is a plan with a pack of pointers: what cd_run executes. It owns neither.
typedef struct cd_step cd_step;
cd_step *cd_step_new(cd_handle *h, void *plan, void *pack);
void cd_step_free(cd_step *s);

// cd_run_address is the address of a cc_call (see package cuda) whose only word is a
// step.
uint64_t cd_run_address(void);
#endif
