//go:build !linux || !cgo || !(amd64 || arm64)

package nvrtc

// Open reports that this build has no compiler: it was made without cgo or for
// another system. The error wraps ErrNoCompiler.
func Open(path, dir string) (*Compiler, error) {
	return nil, &LoadError{Path: "libnvrtc.so", Reason: "this program was built without cgo, or not for Linux on amd64 or arm64"}
}
