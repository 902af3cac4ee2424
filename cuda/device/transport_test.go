//go:build linux

package device_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// recorded is a machine from a file whose GPUs have the identities of the fake driver's.
func recorded(t *testing.T, name string, drv driver.Driver) *topo.Machine {
	t.Helper()
	m, err := readMachine(name, drv)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func readMachine(name string, drv driver.Driver) (*topo.Machine, error) {
	f, err := os.Open("../topo/testdata/machines/" + name + ".json")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := topo.Read(name, f)
	if err != nil {
		return nil, err
	}
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	for i := range m.GPUs[:min(len(m.GPUs), len(infos))] {
		m.GPUs[i].UUID = topo.UUID(infos[i].UUID)
	}
	return m, nil
}

// TestTransport opens worlds on recorded machines that allow symmetric memory only: where
// all GPUs have access to each other it serves, else an error says why not. With leave NCCL
// serves instead.
func TestTransport(t *testing.T) {
	fakeOnly(t)
	for _, tc := range []struct {
		machine string
		devs    []int
		change  func(*topo.Machine)
		want    string // of the error, empty for none
	}{
		{machine: "h200x4", devs: []int{0, 1, 2, 3}},
		{machine: "h200x8", devs: []int{1, 3}},
		{machine: "h200x2_vm", devs: []int{1, 0}},
		{machine: "a100x2_pcie", devs: []int{0, 1}, want: `group "world" of ranks [0 1] needs NCCL (ranks 0 and 1 (GPUs 0 and 1, joined by pcie) have no peer access: read is "chipset not supported")`},
		{machine: "a100x2_pcie", devs: []int{1}},
		{machine: "h200x4", devs: []int{0, 2}, change: func(m *topo.Machine) { m.GPUs[2].MIG = true }, want: "the GPU of rank 1 is partitioned (MIG)"},
		{machine: "h200x4", devs: []int{3, 3}, want: "ranks 0 and 1 are both on GPU"},
		{machine: "h200x2_vm", devs: []int{0, 2}, want: "machine of rank 1: has no GPU"},
	} {
		drv := newFake(t, 8)
		o := small(len(tc.devs))
		o.Machine, o.Transport = recorded(t, tc.machine, drv), topo.Symmetric
		if tc.change != nil {
			tc.change(o.Machine)
		}
		ran := make([]bool, len(tc.devs))
		run := func() error {
			return device.Local(t.Context(), drv, tc.devs, rt.Config{Timeout: plenty}, o, nil, func(ctx context.Context, r *rt.Rank) error {
				ran[r.Info().Rank] = true
				return r.Barrier(ctx)
			})
		}
		err := run()
		if tc.want == "" {
			if err != nil || !ran[0] {
				t.Errorf("%s %v: %v", tc.machine, tc.devs, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || ran[0] {
			t.Errorf("%s %v: %v, want %q", tc.machine, tc.devs, err, tc.want)
		}
		var te *device.TransportError
		if got := errors.As(err, &te); got != (strings.Contains(tc.want, "NCCL") || strings.Contains(tc.want, "MIG")) {
			t.Errorf("%s %v: a TransportError: %v", tc.machine, tc.devs, got)
		} else if got && te.Decision.Transport != topo.NCCL {
			t.Errorf("%s %v: %+v", tc.machine, tc.devs, te)
		}
		if te == nil {
			continue
		}
		o.Transport = ""
		if err := run(); err != nil || !ran[0] {
			t.Errorf("%s %v over NCCL: %v", tc.machine, tc.devs, err)
		}
	}
}

// TestTransportJoin lets ranks with openers of their own join whose machines cannot be one job: every rank fails with the same typed error before it allocates anything.
func TestTransportJoin(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	for name, tc := range map[string]struct {
		change func(m *topo.Machine)
		is     func(err error) bool
		want   string
	}{
		"two hosts": {func(m *topo.Machine) { m.Host.ID, m.Host.Name = "another boot", "another" },
			func(err error) bool { var e *device.TransportError; return errors.As(err, &e) }, "and another"},
		"not one machine": {func(m *topo.Machine) { m.Driver = "1.2.3" },
			func(err error) bool { var e *rt.MismatchError; return errors.As(err, &e) }, `driver of the host that they share differ: "580.159.04" on rank 0, "1.2.3" on rank 1`},
	} {
		job := rendezvous.NewLocal()
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				drv := newFake(t, 2)
				o := small(2)
				o.Machine, o.Transport = recorded(t, "h200x4", drv), topo.Symmetric
				if i == 1 {
					tc.change(o.Machine)
				}
				errs[i] = joins(t, drv, o, job, i)
			})
		}
		wg.Wait()
		for i, err := range errs {
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: rank %d: %v", name, i, err)
			}
		}
	}
}

// joins has rank i of two join the world of a store, leave it, and gives the error.
func joins(t *testing.T, drv driver.Driver, o device.Options, job *rendezvous.Job, i int) error {
	r, err := rt.Join(t.Context(), device.Opener(drv, o), rt.Config{Timeout: plenty, Job: job,
		Env: &rt.Env{Rank: i, World: 2, LocalRank: i, LocalWorld: 2, Source: "test"}})
	if err == nil {
		r.Close()
	}
	return err
}
