//go:build !(linux && cgo && (amd64 || arm64))

package dl

import "unsafe"

func open(string, bool) (unsafe.Pointer, string) {
	return nil, "this program was built without cgo, or not for Linux on amd64 or arm64"
}

func shut(unsafe.Pointer) {}
