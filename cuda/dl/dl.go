// Package dl loads shared libraries at run time, so that a build needs none of NVIDIA's. A
// library stays loaded until the process ends.
package dl

import (
	"fmt"
	"sync"
	"unsafe"
)

// Driver has the names of the CUDA driver's library.
var Driver = []string{"libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib64-nvidia/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// LoadError says why a library could not be used. It wraps Kind.
type LoadError struct {
	Kind   error  // of the package that uses the library: driver.ErrNoDriver, for one
	Path   string // what was opened
	Symbol string // the missing symbol, when that is the reason
	Needs  string // the versions that have it
	Reason string // the loader's words otherwise
}

// Error says what was tried and what to do.
func (e *LoadError) Error() string {
	if e.Symbol != "" {
		return fmt.Sprintf("%v: %s has no symbol %s: %s is needed", e.Kind, e.Path, e.Symbol, e.Needs)
	}
	return fmt.Sprintf("%v: %s: %s", e.Kind, e.Path, e.Reason)
}

// Unwrap gives Kind.
func (e *LoadError) Unwrap() error { return e.Kind }

// Library is a shared library, which a process loads once.
type Library struct {
	Kind   error    // that there is none
	Needs  string   // versions, for the error of a missing symbol
	Names  []string // to try in this order
	Global bool     // libraries that are loaded later find its symbols

	mu     sync.Mutex
	opened string
}

// Load loads the library from path, or under the first of its names that there is if path is
// empty, and says which. bind takes the functions from the handle that dlopen gave, and
// returns the name of one that is missing: that ends the search, which would only hide it.
// Later calls find the library loaded; one that asks for another path fails, as does
// everything in a program that was built without cgo. Errors are *LoadErrors, and leave
// nothing behind.
func (l *Library) Load(path string, bind func(lib unsafe.Pointer) (missing string)) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened != "" {
		if path != "" && path != l.opened {
			return "", &LoadError{Kind: l.Kind, Path: path, Reason: "this process has loaded " + l.opened + " already"}
		}
		return l.opened, nil
	}
	names := l.Names
	if path != "" {
		names = []string{path}
	}
	var first error
	for _, name := range names {
		lib, reason := open(name, l.Global)
		if reason != "" {
			if first == nil {
				first = &LoadError{Kind: l.Kind, Path: name, Reason: reason}
			}
			continue
		}
		if missing := bind(lib); missing != "" {
			shut(lib)
			return "", &LoadError{Kind: l.Kind, Path: name, Symbol: missing, Needs: l.Needs}
		}
		l.opened = name
		return name, nil
	}
	return "", first
}
