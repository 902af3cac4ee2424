//go:build linux

package fake

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// A called function runs in stream order, on the stream that the buffer was bound
// to, and again in every replay of a captured graph.
func TestCommandsCall(t *testing.T) {
	f := New(1)
	ctx, err := f.CtxRetain(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.StreamCreate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.MemAlloc(ctx, 16)
	if err != nil {
		t.Fatal(err)
	}
	add := f.RegisterCall(func(a []uint64) error {
		b := driver.HostBytes(driver.Ptr(a[0]), 4)
		binary.LittleEndian.PutUint32(b, 3*binary.LittleEndian.Uint32(b)+uint32(a[1]))
		return nil
	})
	var cmds, outer driver.Commands
	cmds.Memset32(driver.Main, p, 5, 1)
	args := []uint64{uint64(p), 2}
	cmds.Call(driver.Main, add, args...) // 17
	args[1] = 99                         // the buffer has its own copy
	cmds.Call(driver.Main, add, uint64(p), 1)
	cmds.Copy(driver.Main, p+8, p, 4)
	outer.Append(&cmds)
	read := func() uint32 {
		t.Helper()
		b := make([]byte, 4)
		if err := f.CopyOut(ctx, s, b, p+8); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint32(b)
	}
	if err := f.Run(ctx, outer.On(s)); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 52 {
		t.Errorf("run: %d, want 52", got)
	}

	if err := f.CaptureBegin(ctx, s); err != nil {
		t.Fatal(err)
	}
	var once driver.Commands
	once.Call(s, add, uint64(p+8), 4)
	if err := f.Run(ctx, once.On(s)); err != nil {
		t.Fatal(err)
	}
	g, err := f.CaptureEnd(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.GraphInstantiate(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 52 {
		t.Errorf("a captured call ran at once: %d", got)
	}
	for _, want := range []uint32{160, 484} {
		if err := f.GraphLaunch(ctx, x, s); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != want {
			t.Errorf("replay: %d, want %d", got, want)
		}
	}
}

func TestCallErrors(t *testing.T) {
	f := New(1)
	ctx, _ := f.CtxRetain(0)
	s, _ := f.StreamCreate(ctx)
	for _, fn := range []driver.CFunc{0, 7} {
		var c driver.Commands
		c.Call(s, fn)
		if err := f.Run(ctx, c.On(s)); !errors.Is(err, &driver.Error{Code: driver.CodeInvalid}) {
			t.Errorf("function %d: %v", fn, err)
		}
	}
	fail := f.RegisterCall(func([]uint64) error {
		return &driver.Error{Call: "called function", Code: -1015, Name: "CONCERT_CALL", Text: "the library returned status 15"}
	})
	var c driver.Commands
	c.Call(s, fail)
	if err := f.Run(ctx, c.On(s)); err != nil {
		t.Fatal(err)
	}
	err := f.StreamSync(ctx, s)
	if st, ok := driver.CallStatus(err); !ok || st != 15 || !bytes.Contains([]byte(err.Error()), []byte("status 15")) {
		t.Errorf("status %d, %v of %v", st, ok, err)
	}
	if _, ok := driver.CallStatus(driver.ErrOutOfMemory); ok {
		t.Error("an error of the driver has a library's status")
	}
}

// Devices that are not there are told apart from devices without access.
func TestAccessRange(t *testing.T) {
	f := New(2)
	f.Separate(0, 1)
	for _, c := range []struct {
		dev, peer int
		ok, wrong bool
	}{{0, 0, true, false}, {1, 1, true, false}, {0, 1, false, false}, {1, 0, false, false}, {-1, 0, false, true}, {2, 0, false, true}, {0, -1, false, true}, {0, 2, false, true}, {-1, 2, false, true}} {
		ok, err := f.CanAccessPeer(c.dev, c.peer)
		if ok != c.ok || (err != nil) != c.wrong {
			t.Errorf("devices %d and %d: %v, %v", c.dev, c.peer, ok, err)
		}
	}
}

// Two drivers of a process, whose handles count alike, do not mix their kernels.
func TestFunctionsOfDrivers(t *testing.T) {
	names := []string{"barrier", "signal"}
	var drivers []*Driver
	var handles []driver.Func
	for _, name := range names {
		f := New(1)
		ctx, err := f.CtxRetain(0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.ModuleLoad(ctx, []byte(".visible .entry "+name+"("))
		if err != nil {
			t.Fatal(err)
		}
		h, err := f.Function(ctx, m, name)
		if err != nil {
			t.Fatal(err)
		}
		drivers, handles = append(drivers, f), append(handles, h)
	}
	for i, name := range names {
		if o, _ := drivers[i].functions.Load(uint64(handles[i])); handles[i] != handles[0] || o.(*function).name != name {
			t.Errorf("driver %d has %v for %s", i, o, name)
		}
	}
}
