//go:build linux && cgo && (amd64 || arm64)

package nvrtc

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nvrtc.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/seed-ee968945/concert/cuda/dl"
)

// lib is the loaded library.
type lib struct {
	fn   *C.rtc_lib
	name string
}

var loaded struct {
	sync.Mutex
	compilers map[[2]string]*Compiler // by path and folder
}

// Open loads the compiler's library from path, or under its usual names if path is
// empty, and keeps images in dir, or in memory only if dir is empty. The library stays
// loaded, and equal arguments give the same compiler. The error wraps ErrNoCompiler.
func Open(path, dir string) (*Compiler, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if c := loaded.compilers[[2]string{path, dir}]; c != nil {
		return c, nil
	}
	l, err := open(path)
	if err != nil {
		return nil, err
	}
	c := newCompiler(l, dir)
	if loaded.compilers == nil {
		loaded.compilers = map[[2]string]*Compiler{}
	}
	loaded.compilers[[2]string{path, dir}] = c
	return c, nil
}

func open(path string) (*lib, error) {
	l := &lib{fn: (*C.rtc_lib)(C.calloc(1, C.sizeof_rtc_lib))}
	library := dl.Library{Kind: ErrNoCompiler, Needs: "version 12 or 13", Names: []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}}
	name, err := library.Load(path, func(lib unsafe.Pointer) string { return C.GoString(C.rtc_bind(l.fn, lib)) })
	if err != nil {
		C.free(unsafe.Pointer(l.fn))
		return nil, err
	}
	var major, minor C.int
	if rc := C.rtc_version(l.fn, &major, &minor); rc != 0 {
		return nil, &dl.LoadError{Kind: ErrNoCompiler, Path: name, Reason: "it does not tell its version: " + C.GoString(C.rtc_error(l.fn, rc))}
	}
	l.name = fmt.Sprintf("%d.%d", int(major), int(minor))
	return l, nil
}

func (l *lib) version() string { return l.name }

func (l *lib) compile(name, source string, options []string) ([]byte, error) {
	src, title := C.CString(source), C.CString(name+".cu")
	defer C.free(unsafe.Pointer(src))
	defer C.free(unsafe.Pointer(title))
	var p C.rtc_program
	if rc := C.rtc_create(l.fn, &p, src, title); rc != 0 {
		return nil, l.failed(name, source, rc, "")
	}
	defer C.rtc_destroy(l.fn, &p)
	opts := (**C.char)(C.calloc(C.size_t(len(options)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(opts))
	list := unsafe.Slice(opts, len(options)+1)
	for i, o := range options {
		list[i] = C.CString(o)
		defer C.free(unsafe.Pointer(list[i]))
	}
	if rc := C.rtc_compile(l.fn, p, C.int(len(options)), opts); rc != 0 {
		return nil, l.failed(name, source, rc, l.log(p))
	}
	var n C.size_t
	if rc := C.rtc_cubin_size(l.fn, p, &n); rc != 0 || n == 0 {
		return nil, l.failed(name, source, rc, "there is no machine code: the options name no real architecture")
	}
	buf := C.malloc(n)
	defer C.free(buf)
	if rc := C.rtc_cubin(l.fn, p, (*C.char)(buf)); rc != 0 {
		return nil, l.failed(name, source, rc, "")
	}
	return append([]byte(nil), unsafe.Slice((*byte)(buf), int(n))...), nil
}

func (l *lib) log(p C.rtc_program) string {
	var n C.size_t
	if C.rtc_log_size(l.fn, p, &n) != 0 || n == 0 {
		return ""
	}
	buf := (*C.char)(C.calloc(1, n+1))
	defer C.free(unsafe.Pointer(buf))
	if C.rtc_log_text(l.fn, p, buf) != 0 {
		return ""
	}
	return C.GoString(buf)
}

func (l *lib) failed(name, source string, rc C.int, log string) error {
	return compileError(name, source, int(rc), C.GoString(C.rtc_error(l.fn, rc)), log)
}
