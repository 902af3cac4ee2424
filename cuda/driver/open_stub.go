//go:build !linux || !cgo || !(amd64 || arm64)

package driver

// Open reports that this build has no driver: it was made without cgo or for
// another system. path is ignored. The error wraps ErrNoDriver.
func Open(path string) (Driver, error) {
	return nil, &LoadError{Path: "libcuda.so.1", Reason: "this program was built without cgo, or not for Linux on amd64 or arm64"}
}
