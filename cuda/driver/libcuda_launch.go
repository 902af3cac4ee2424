//go:build linux && cgo && (amd64 || arm64)

package driver

/*
#include <stdlib.h>
#include "shim.h"
// Run is the hot path: what it passes stays on its stack. No function of C calls Go.
#cgo noescape cc_run
#cgo nocallback cc_run
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

func (lib) ModuleLoad(c Ctx, image []byte) (Module, error) {
	if len(image) == 0 {
		return 0, &Error{Call: "cuModuleLoadDataEx", Code: CodeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: "empty image"}
	}
	buf := C.CBytes(append(append([]byte(nil), image...), 0)) // PTX must end in a zero byte
	defer C.free(buf)
	const logBytes = 8192
	log := C.calloc(1, logBytes)
	defer C.free(log)
	// Options: error log buffer (5) and its size (6).
	opts := (*[2]C.int)(C.malloc(8))
	vals := (*[2]unsafe.Pointer)(C.malloc(16))
	defer C.free(unsafe.Pointer(opts))
	defer C.free(unsafe.Pointer(vals))
	opts[0], opts[1] = 5, 6
	vals[0] = log
	*(*uintptr)(unsafe.Pointer(&vals[1])) = logBytes
	var m C.handle
	err := in(c, "cuModuleLoadDataEx", func() C.int {
		return C.cc_module_load(&m, buf, 2, &opts[0], &vals[0])
	})
	if e, ok := err.(*Error); ok {
		if text := C.GoString((*C.char)(log)); text != "" {
			e.Text += ": " + text
		}
	}
	return Module(m), err
}

func (lib) ModuleUnload(c Ctx, m Module) error {
	return give(c, "cuModuleUnload", func() C.int { return C.cc_module_unload(C.handle(m)) })
}

func (lib) Function(c Ctx, m Module, name string) (Func, error) {
	cs := C.CString(name)
	defer C.free(unsafe.Pointer(cs))
	var f C.handle
	err := in(c, "cuModuleGetFunction", func() C.int { return C.cc_module_function(&f, C.handle(m), cs) })
	if err == nil {
		err = allowLocal(c, f)
	}
	if e, ok := err.(*Error); ok {
		e.Text = fmt.Sprintf("kernel %s: %s", name, e.Text)
	}
	return Func(f), err
}

// libLimits has a lock for each context, under which one thread at a time changes its limits.
var libLimits sync.Map // of *sync.Mutex, by Ctx

// allowLocal raises the local memory that the context has for each thread to what f needs. Where
// it has less, the driver makes it larger at f's launch, which waits for all kernels that run; so
// does this, while a kernel of another context may wait for what the caller of another is to launch.
func allowLocal(c Ctx, f C.handle) error {
	const localBytes, stackSize = 3, 0
	var need C.int
	if err := in(c, "cuFuncGetAttribute", func() C.int { return C.cc_function_get(&need, localBytes, f) }); err != nil {
		return err
	}
	var has C.size_t
	limit := func() error {
		return in(c, "cuCtxGetLimit", func() C.int { return C.cc_ctx_limit(&has, stackSize) })
	}
	if err := limit(); err != nil || C.size_t(need) <= has {
		return err
	}
	l, _ := libLimits.LoadOrStore(c, new(sync.Mutex))
	l.(*sync.Mutex).Lock()
	defer l.(*sync.Mutex).Unlock()
	if err := limit(); err != nil || C.size_t(need) <= has { // meanwhile
		return err
	}
	err := in(c, "cuCtxSetLimit", func() C.int { return C.cc_ctx_set_limit(stackSize, C.size_t(need)) })
	if e, ok := err.(*Error); ok {
		e.Text = fmt.Sprintf("%d bytes of local memory a thread: %s", int(need), e.Text)
	}
	return err
}

func (lib) AllowShared(c Ctx, f Func, bytes int) error {
	return in(c, "cuFuncSetAttribute", func() C.int { return C.cc_function_set(C.handle(f), 8, C.int(bytes)) })
}

func (lib) TensorMap(c Ctx, m *TensorMap) (out [TensorMapBytes]byte, err error) {
	const uint16Elements, swizzle128, promote256 = 1, 3, 3
	swizzle := C.int(0)
	if m.Box[0] == 64 {
		swizzle = swizzle128
	}
	p := C.aligned_alloc(64, TensorMapBytes)
	defer C.free(p)
	sizes := [3]C.uint64_t{C.uint64_t(m.Sizes[0]), C.uint64_t(m.Sizes[1]), C.uint64_t(m.Sizes[2])}
	strides := [2]C.uint64_t{C.uint64_t(m.Strides[0]), C.uint64_t(m.Strides[1])}
	box := [3]C.unsigned{C.unsigned(m.Box[0]), C.unsigned(m.Box[1]), 1}
	steps := [3]C.unsigned{1, 1, 1}
	err = in(c, "cuTensorMapEncodeTiled", func() C.int {
		return C.cc_tensor_map(p, uint16Elements, 3, C.handle(m.At), &sizes[0], &strides[0], &box[0], &steps[0], 0, swizzle, promote256, 0)
	})
	return [TensorMapBytes]byte(C.GoBytes(p, TensorMapBytes)), err
}

// libTurns orders what threads submit.
var libTurns turns

func (lib) Launch(c Ctx, s Stream, f Func, grid, block, shared int, buf []byte) error {
	var p unsafe.Pointer
	if len(buf) > 0 {
		p = unsafe.Pointer(&buf[0])
	}
	t, n := libTurns.take(c)
	defer t.end(n)
	return check("cuLaunchKernel", C.cc_launch_buffer(C.handle(c), C.handle(f), C.unsigned(grid), C.unsigned(block),
		C.unsigned(shared), C.handle(s), p, C.size_t(len(buf))))
}

func (lib) Run(c Ctx, words []uint64) error {
	if len(words) == 0 {
		return nil
	}
	var failed C.size_t
	t, n := libTurns.take(c)
	defer t.end(n)
	err := check("command buffer", C.cc_run(C.handle(c), (*C.uint64_t)(&words[0]), C.size_t(len(words)), &failed))
	if e, ok := err.(*Error); ok {
		e.Call = fmt.Sprintf("command at word %d (opcode %d)", int(failed), words[int(failed)]&255)
	}
	return err
}

func (lib) CaptureBegin(c Ctx, s Stream) error {
	const relaxed = 2
	return libShared.BeginCapture(c, s, func() error {
		return in(c, "cuStreamBeginCapture", func() C.int { return C.cc_capture_begin(C.handle(s), relaxed) })
	})
}

func (lib) CaptureEnd(c Ctx, s Stream) (Graph, error) {
	var g C.handle
	err := in(c, "cuStreamEndCapture", func() C.int { return C.cc_capture_end(C.handle(s), &g) })
	libShared.CaptureEnded(c, s)
	return Graph(g), err
}

func (lib) StreamCapture(c Ctx, s Stream) (uint64, error) {
	var status C.int
	var id C.uint64_t
	err := in(c, "cuStreamGetCaptureInfo", func() C.int { return C.cc_stream_capture(C.handle(s), &status, &id, nil, nil, nil) })
	switch {
	case err != nil || status == 0:
		return 0, err
	case status != 1: // invalidated: nothing more can be added to it
		return ^uint64(0), nil
	}
	return uint64(id), nil
}

func (lib) GraphInstantiate(c Ctx, g Graph) (Exec, error) {
	const useNodePriority = 8 // else all nodes get the priority of the stream that the graph is launched in
	var x C.handle
	err := in(c, "cuGraphInstantiate", func() C.int { return C.cc_graph_instantiate(&x, C.handle(g), useNodePriority) })
	return Exec(x), err
}

func (lib) GraphUpload(c Ctx, x Exec, s Stream) error {
	return in(c, "cuGraphUpload", func() C.int { return C.cc_graph_upload(C.handle(x), C.handle(s)) })
}

func (lib) GraphLaunch(c Ctx, x Exec, s Stream) error {
	return in(c, "cuGraphLaunch", func() C.int { return C.cc_graph_launch(C.handle(x), C.handle(s)) })
}

func (lib) GraphDestroy(c Ctx, g Graph) error {
	return give(c, "cuGraphDestroy", func() C.int { return C.cc_graph_destroy(C.handle(g)) })
}

func (lib) ExecDestroy(c Ctx, x Exec) error {
	return give(c, "cuGraphExecDestroy", func() C.int { return C.cc_graph_exec_destroy(C.handle(x)) })
}
