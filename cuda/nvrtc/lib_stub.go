//go:build !linux || !cgo || !(amd64 || arm64)

package nvrtc

import "github.com/seed-ee968945/concert/cuda/dl"

// Open reports that this build has no compiler: it was made without cgo or for
// another system. The error wraps ErrNoCompiler.
func Open(path, dir string) (*Compiler, error) {
	_, err := (&dl.Library{Kind: ErrNoCompiler, Names: []string{"libnvrtc.so"}}).Load(path, nil)
	return nil, err
}
