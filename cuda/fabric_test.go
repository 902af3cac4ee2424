//go:build linux

package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// TestFabricTrial opens worlds on devices with and without fabric handles.
func TestFabricTrial(t *testing.T) {
	for _, c := range []struct {
		name              string
		claims, permitted bool
		code              int // of the driver's error, 0 for none
	}{
		{"none", false, false, 0},
		{"claimed, not permitted", true, false, driver.CodeNotPermitted},
		{"working", true, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fake.New(2)
			f.ShareBy(true, c.claims, c.permitted)
			w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range w.Local() {
				err := r.Fabric()
				if c.permitted {
					if err != nil {
						t.Errorf("rank %d: %v", r.ID, err)
					}
					continue
				}
				var fe *driver.FabricError
				if !errors.As(err, &fe) || !errors.Is(err, driver.ErrNoFabric) || fe.Dev != r.Dev {
					t.Errorf("rank %d: %v", r.ID, err)
				}
				var de *driver.Error
				if errors.As(err, &de) != (c.code != 0) || de != nil && de.Code != c.code {
					t.Errorf("rank %d: %v, expected code %d", r.ID, err, c.code)
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if l := f.Leaks().String(); l != "" {
				t.Errorf("not released: %s", l)
			}
		})
	}
}

// TestFabricTrialFails fails each call of the opening in turn: those of the trial make
// the handles absent, the others end the opening, and nothing is left behind.
func TestFabricTrialFails(t *testing.T) {
	injected := errors.New("injected")
	absent := map[string]bool{}
	for n := 1; ; n++ {
		f := fake.New(1)
		f.ShareBy(true, true, true)
		f.FailCall(n, injected)
		w, err := symm.NewLocalWorld(f, []int{0}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
		opened := f.Calls()
		if err == nil {
			var fe *driver.FabricError
			if err := w.Rank(0).Fabric(); errors.As(err, &fe) && errors.Is(err, injected) {
				absent[fe.Step] = true
			} else if err != nil {
				t.Errorf("call %d: %v", n, err)
			}
			err = w.Close()
		}
		if err != nil && !errors.Is(err, injected) {
			t.Errorf("call %d: %v", n, err)
		}
		if l := f.Leaks().String(); l != "" {
			t.Errorf("call %d: not released: %s", n, l)
		}
		if n > opened {
			break
		}
	}
	for _, step := range []string{"asking for the granularity", "allocation", "export", "import", "release"} {
		if !absent[step] {
			t.Errorf("no failure of the step %q was taken for absence: %v", step, absent)
		}
	}
}

// TestFabricProcesses shares memory between processes by handles.
func TestFabricProcesses(t *testing.T) {
	if *onGPU {
		t.Skip("whether handles work depends on the machine: rank.Fabric tells")
	}
	for _, scenario := range []string{"fabric only", "fabric asked for"} {
		t.Run(scenario, func(t *testing.T) { passed(t, spawn(t, scenario, 3)) })
	}
	t.Run("one has only descriptors", func(t *testing.T) {
		for _, o := range spawn(t, "fabric mixed", 2) {
			fail, ok := line(o, "FAIL")
			if !ok || !strings.Contains(fail, "ways of sharing memory differ: ") {
				t.Errorf("rank %d: %q", o.rank, o.lines)
			}
		}
	})
}

// TestNoSharing wants a typed error where no way leads to another process, and a world
// of one process all the same.
func TestNoSharing(t *testing.T) {
	f := fake.New(2)
	f.ShareBy(false, true, false)
	o := symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}
	_, err := symm.NewProcessWorld(t.Context(), f, groupOf(t, 2), 0, o)
	var ns *driver.NoSharingError
	if !errors.As(err, &ns) || ns.Dev != 0 || !errors.Is(err, driver.ErrNoFabric) {
		t.Errorf("%v", err)
	}
	w, err := symm.NewLocalWorld(f, []int{0, 1}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if l := f.Leaks().String(); l != "" {
		t.Errorf("not released: %s", l)
	}
}
