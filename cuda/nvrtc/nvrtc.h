// The part of NVIDIA's runtime compiler that concert uses, declared by us so that no
// toolkit is needed to build, and resolved at run time by dlopen.
#ifndef CONCERT_NVRTC_H
#define CONCERT_NVRTC_H
#include <stddef.h>

typedef void *rtc_program;

#define RTC_FUNCTIONS(X)                                                                                              \
	X(version, "nvrtcVersion", (int *major, int *minor), (major, minor))                                          \
	X(create, "nvrtcCreateProgram",                                                                               \
	  (rtc_program * p, const char *src, const char *name, int n, const char *const *headers, const char *const *names), \
	  (p, src, name, n, headers, names))                                                                          \
	X(compile, "nvrtcCompileProgram", (rtc_program p, int n, const char *const *options), (p, n, options))        \
	X(log_size, "nvrtcGetProgramLogSize", (rtc_program p, size_t *n), (p, n))                                     \
	X(log_text, "nvrtcGetProgramLog", (rtc_program p, char *text), (p, text))                                     \
	X(cubin_size, "nvrtcGetCUBINSize", (rtc_program p, size_t *n), (p, n))                                        \
	X(cubin, "nvrtcGetCUBIN", (rtc_program p, char *image), (p, image))                                           \
	X(destroy, "nvrtcDestroyProgram", (rtc_program * p), (p))

typedef struct {
#define RTC_FIELD(name, sym, params, args) int(*name) params;
	RTC_FUNCTIONS(RTC_FIELD)
	const char *(*error_text)(int);
} rtc_lib;

// rtc_bind resolves every symbol, and returns the name of one that is missing.
const char *rtc_bind(rtc_lib *table, void *lib);

int rtc_version(const rtc_lib *lib, int *major, int *minor);
int rtc_create(const rtc_lib *lib, rtc_program *p, const char *source, const char *name);
int rtc_compile(const rtc_lib *lib, rtc_program p, int n, const char *const *options);
int rtc_log_size(const rtc_lib *lib, rtc_program p, size_t *n);
int rtc_log_text(const rtc_lib *lib, rtc_program p, char *text);
int rtc_cubin_size(const rtc_lib *lib, rtc_program p, size_t *n);
int rtc_cubin(const rtc_lib *lib, rtc_program p, char *image);
int rtc_destroy(const rtc_lib *lib, rtc_program *p);
const char *rtc_error(const rtc_lib *lib, int code);
#endif
