// Package nvml reads a topo.Machine from the driver through go-nvml. It is the only
// package that imports go-nvml.
//
// go-nvml needs cgo; without it, or off Linux, Read returns an error that wraps
// ErrUnavailable. It relies on lazy symbol binding: a program that
// imports this package must not be linked with -z now or started with LD_BIND_NOW=1,
// or it ends before main with "undefined symbol". Where the system's linker binds
// eagerly, link with -ldflags=-extldflags=-Wl,-z,lazy. Its linker flags also hide
// missing functions of other cgo packages in the same program, so those packages
// are also built and tested without this one. CGO_CFLAGS=-Wno-deprecated-declarations
// silences the warnings of its first build.
//
// A function that the installed driver lacks is never called: each newer one is
// looked up first.
package nvml

import (
	"errors"
	"fmt"
)

// ErrUnavailable is wrapped by every error that means that this machine or this
// build cannot read the topology.
var ErrUnavailable = errors.New("topology cannot be read")

// Error is a failed call of the management library.
type Error struct {
	Call   string
	GPU    int // -1 if the call is not about one
	Code   int
	Reason string
	wrap   error
}

// Error names the call, the GPU and the reason.
func (e *Error) Error() string {
	s := e.Call
	if e.GPU >= 0 {
		s += fmt.Sprintf(" of GPU %d", e.GPU)
	}
	s += ": " + e.Reason
	if e.wrap != nil {
		s = e.wrap.Error() + ": " + s
	}
	return s
}

// Unwrap gives ErrUnavailable where that is the reason.
func (e *Error) Unwrap() error { return e.wrap }

// Options say how to read.
type Options struct {
	// Path is the library to use; empty means libnvidia-ml.so.1.
	Path string
	// HostID replaces the host's own identity, so that one host can stand for several.
	HostID string
}
