//go:build !linux || !cgo || !(amd64 || arm64)

package nccl

// Open reports that this build cannot load NCCL: it was made without cgo or for
// another system. path is ignored. The error wraps ErrNoLibrary.
func Open(path string) (Library, error) {
	return nil, &LoadError{Path: "libnccl.so.2", Reason: "this program was built without cgo, or not for Linux on amd64 or arm64"}
}
