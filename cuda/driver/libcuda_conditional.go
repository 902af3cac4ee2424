//go:build linux && cgo && (amd64 || arm64)

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
)

var (
	conditionsOnce sync.Once
	conditionsErr  error
)

// switchVersion is the first with nodes that choose among bodies; those of loops are older.
const switchVersion = 12080

func (l lib) Conditions() error {
	conditionsOnce.Do(func() {
		if v, err := l.Version(); err != nil {
			conditionsErr = fmt.Errorf("%w: %w", ErrNoConditions, err)
		} else if v < switchVersion {
			conditionsErr = fmt.Errorf("%w: the driver is of CUDA %d.%d, they are complete since 12.8", ErrNoConditions, v/1000, v%1000/10)
		} else if missing := C.cc_bind_conditional(); missing != nil {
			conditionsErr = fmt.Errorf("%w: the driver library has no symbol %s", ErrNoConditions, C.GoString(missing))
		}
	})
	return conditionsErr
}

func (lib) ConditionCreate(c Ctx, s Stream) (Condition, error) {
	var h C.uint64_t
	err := in(c, "cuGraphConditionalHandleCreate", func() C.int { return C.cc_condition(C.handle(c), C.handle(s), &h) })
	return Condition(h), err
}

func (lib) CaptureDivide(c Ctx, s Stream, by Condition, loop bool, bodies int) (*Division, error) {
	const while, choose = 1, 2 // CUgraphConditionalNodeType
	kind := C.int(choose)
	if loop {
		kind = while
	}
	var g, node C.handle
	list := make([]C.handle, bodies)
	err := in(c, "cuGraphAddNode", func() C.int {
		return C.cc_divide(C.handle(c), C.handle(s), C.uint64_t(by), kind, C.unsigned(bodies), &g, &node, &list[0])
	})
	d := &Division{Graph: Graph(g), Node: Node(node), Bodies: make([]Graph, bodies)}
	for i, b := range list {
		d.Bodies[i] = Graph(b)
	}
	return d, err
}

func (lib) CaptureInto(c Ctx, s Stream, g Graph, behind Node) error {
	const relaxed = 2
	node, n := C.handle(behind), C.size_t(0)
	if behind != 0 {
		n = 1
	}
	return libShared.BeginCapture(c, s, func() error {
		return in(c, "cuStreamBeginCaptureToGraph", func() C.int { return C.cc_begin_into(C.handle(s), C.handle(g), &node, nil, n, relaxed) })
	})
}
