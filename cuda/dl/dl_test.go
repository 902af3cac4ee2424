//go:build linux && cgo && (amd64 || arm64)

package dl

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

var errNone = errors.New("no usable C library")

func TestLoad(t *testing.T) {
	l := Library{Kind: errNone, Needs: "C", Names: []string{"libnone.so.0", "libc.so.6", "libm.so.6"}}
	all := func(lib unsafe.Pointer) string {
		if lib == nil {
			t.Error("no handle")
		}
		return ""
	}
	refused := func(path string, bind func(unsafe.Pointer) string, want string) {
		t.Helper()
		_, err := l.Load(path, bind)
		var le *LoadError
		if !errors.Is(err, errNone) || !errors.As(err, &le) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("/nowhere/libc.so.6", all, "/nowhere/libc.so.6: cannot open shared object file")
	refused("", func(unsafe.Pointer) string { return "shiny" }, "no usable C library: libc.so.6 has no symbol shiny: C is needed")
	for _, path := range []string{"", "libc.so.6"} {
		if name, err := l.Load(path, all); name != "libc.so.6" || err != nil {
			t.Errorf("%q: %q, %v", path, name, err)
		}
	}
	refused("libm.so.6", all, "this process has loaded libc.so.6 already")
}
