//go:build linux

package device_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	rt "github.com/seed-ee968945/concert/runtime"
)

// early is a driver that notes what a rank asks it to look up, make or load once the rank has launched
// something in a run.
type early struct {
	*fake.Driver
	mu   sync.Mutex
	runs map[driver.Ctx]bool // what runs has been launched, by context
	late []string
}

func (d *early) launched(c driver.Ctx) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs[c] = true
}

func (d *early) asked(c driver.Ctx, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs[c] {
		d.late = append(d.late, what)
	}
}

func (d *early) Run(c driver.Ctx, words []uint64) error {
	for i := 0; i < len(words); i += int(words[i] >> 8) {
		if op := words[i] & 0xff; op == 1 || op == 9 { // launches; inputs are copied before
			d.launched(c)
		}
	}
	return d.Driver.Run(c, words)
}

func (d *early) Function(c driver.Ctx, m driver.Module, name string) (driver.Func, error) {
	d.asked(c, "Function "+name)
	return d.Driver.Function(c, m, name)
}

func (d *early) ModuleLoad(c driver.Ctx, image []byte) (driver.Module, error) {
	d.asked(c, "ModuleLoad")
	return d.Driver.ModuleLoad(c, image)
}

func (d *early) MemAlloc(c driver.Ctx, bytes uint64) (driver.Ptr, error) {
	d.asked(c, fmt.Sprint("MemAlloc ", bytes))
	return d.Driver.MemAlloc(c, bytes)
}

// A step that runs call by call has all its code at hand before its first launch, that of collectives
// whose form a capture would leave open, too: a peer may wait in a kernel from then on.
func TestPlannedBeforeRun(t *testing.T) {
	fakeOnly(t)
	x, y, z := rt.C(0, rt.F32, 1024), rt.C(4096, rt.F32, 2048), rt.C(12288, rt.F32, 1024)
	m := &rt.Module{Name: "m", World: 2, Arena: 16384, Streams: []string{"comm"}, Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{x}}}, Outputs: []rt.Param{{Name: "z", Tensors: rt.Ts{z}}}}
	step := func(e *rt.Exec) {
		e.AllGather("comm", "world", 0, rt.Ts{y}, rt.Ts{x})
		e.ReduceScatter("comm", "world", "sum", 0, rt.Ts{z}, rt.Ts{y})
	}
	drv := &early{Driver: newFake(t, 2), runs: map[driver.Ctx]bool{}}
	_, devs, o := target(t, 2)
	var opened sync.WaitGroup
	opened.Add(2)
	begin := sync.OnceFunc(func() { clear(drv.runs); drv.late = nil })
	in := rt.Value{DType: rt.F32, Shape: rt.Dims{1024}, Data: make([]byte, 4096)}
	err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		opened.Done()
		opened.Wait()
		begin()
		for range 2 {
			if _, err := rt.RunModule(ctx, r, m, step, []rt.Value{in}, rt.Options{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(drv.late) > 0 || len(drv.runs) != 2 {
		t.Errorf("%d ranks ran; asked for after a launch: %v", len(drv.runs), drv.late)
	}
}
