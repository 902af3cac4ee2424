//go:build linux && cgo && (amd64 || arm64)

package dl

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// One call, because another one of this thread could change what dlerror says.
static void *open_library(const char *path, int global, const char **why)
{
	void *lib = dlopen(path, global ? RTLD_LAZY | RTLD_GLOBAL : RTLD_NOW | RTLD_LOCAL);
	*why = lib ? 0 : dlerror();
	return lib;
}
*/
import "C"

import (
	"runtime"
	"strings"
	"unsafe"
)

func open(path string, global bool) (lib unsafe.Pointer, reason string) {
	runtime.LockOSThread() // dlerror's text belongs to the thread
	defer runtime.UnlockOSThread()
	cs := C.CString(path)
	defer C.free(unsafe.Pointer(cs))
	var why *C.char
	var flag C.int
	if global {
		flag = 1
	}
	if lib = C.open_library(cs, flag, &why); lib == nil {
		return nil, strings.TrimPrefix(C.GoString(why), path+": ")
	}
	return lib, ""
}

func shut(lib unsafe.Pointer) { C.dlclose(lib) }
