//go:build !linux || !cgo || !(amd64 || arm64)

package nccl

import "github.com/seed-ee968945/concert/cuda/dl"

// Open reports that this build cannot load NCCL: it was made without cgo or for
// another system. The error wraps ErrNoLibrary.
func Open(path string) (Library, error) {
	_, err := (&dl.Library{Kind: ErrNoLibrary, Names: []string{"libnccl.so.2"}}).Load(path, nil)
	return nil, err
}
