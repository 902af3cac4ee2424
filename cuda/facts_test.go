//go:build linux

package cuda

import (
	"errors"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// asked counts the questions about devices' access to each other and the calls of trials
// of fabric handles, which only trials make in worlds of one process.
type asked struct {
	*fake.Driver
	access, trials int
	fail           error // of the next trial
}

func (a *asked) CanAccessPeer(dev, peer int) (bool, error) {
	a.access++
	return a.Driver.CanAccessPeer(dev, peer)
}

func (a *asked) ExportFabric(c driver.Ctx, m driver.Mem) (driver.FabricHandle, error) {
	a.trials++
	if err := a.fail; err != nil {
		a.fail = nil
		return driver.FabricHandle{}, err
	}
	return a.Driver.ExportFabric(c, m)
}

// TestFactsOnce opens worlds one after the other: what does not change about a driver's
// devices is asked once, and again only where the driver failed.
func TestFactsOnce(t *testing.T) {
	if *onGPU {
		t.Skip("the fake driver counts calls")
	}
	world := func(a *asked) (fabric error) {
		t.Helper()
		w, err := symm.NewLocalWorld(a, []int{0, 1, 2}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
		if err != nil {
			t.Fatal(err)
		}
		fabric = w.Rank(0).Fabric()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		return fabric
	}
	a := &asked{Driver: fake.New(3)}
	a.ShareBy(true, true, true)
	for i := range 3 {
		if err := world(a); err != nil || a.access != 6 || a.trials != 3 {
			t.Errorf("world %d: %d questions, %d trials, %v", i, a.access, a.trials, err)
		}
	}
	// Another driver knows nothing of it.
	b := &asked{Driver: fake.New(3), fail: driver.ErrOutOfMemory}
	b.ShareBy(true, true, true)
	if err := world(b); !errors.Is(err, driver.ErrNoFabric) || !errors.Is(err, driver.ErrOutOfMemory) || b.access != 6 || b.trials != 3 {
		t.Errorf("without memory: %d questions, %d trials, %v", b.access, b.trials, err)
	}
	for range 2 { // device 0 again
		if err := world(b); err != nil || b.access != 6 || b.trials != 4 {
			t.Errorf("with memory again: %d questions, %d trials, %v", b.access, b.trials, err)
		}
	}
	// What is not permitted stays so.
	b.ShareBy(true, true, false)
	calls := func() int { n := b.Calls(); b.FailCall(0, nil); return n }
	calls()
	world(b)
	first := calls()
	if err := world(b); !errors.Is(err, &driver.Error{Code: driver.CodeNotPermitted}) {
		t.Errorf("not permitted: %v", err)
	}
	if again := calls(); again != first-6-3*2 { // pairs; granularity and allocation of each trial
		t.Errorf("%d driver calls, then %d", first, again)
	}
	if l := b.Leaks().String(); l != "" {
		t.Errorf("not released: %s", l)
	}
}
