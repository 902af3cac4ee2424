//go:build linux && cgo && (amd64 || arm64)

#include "nvrtc.h"
#include "../dl/bind.h"

const char *rtc_bind(rtc_lib *table, void *lib)
{
#define RTC_BIND(name, sym, params, args) DL_BIND(*table, name, sym)
	RTC_FUNCTIONS(RTC_BIND)
	RTC_BIND(error_text, "nvrtcGetErrorString", , )
	return 0;
}

int rtc_version(const rtc_lib *lib, int *major, int *minor) { return lib->version(major, minor); }
int rtc_create(const rtc_lib *lib, rtc_program *p, const char *source, const char *name) { return lib->create(p, source, name, 0, 0, 0); }
int rtc_compile(const rtc_lib *lib, rtc_program p, int n, const char *const *options) { return lib->compile(p, n, options); }
int rtc_log_size(const rtc_lib *lib, rtc_program p, size_t *n) { return lib->log_size(p, n); }
int rtc_log_text(const rtc_lib *lib, rtc_program p, char *text) { return lib->log_text(p, text); }
int rtc_cubin_size(const rtc_lib *lib, rtc_program p, size_t *n) { return lib->cubin_size(p, n); }
int rtc_cubin(const rtc_lib *lib, rtc_program p, char *image) { return lib->cubin(p, image); }
int rtc_destroy(const rtc_lib *lib, rtc_program *p) { return lib->destroy(p); }
const char *rtc_error(const rtc_lib *lib, int code) { return lib->error_text(code); }
