//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
	"golang.org/x/sys/unix"
)

// joinOn joins on a driver of its own, on which nothing may be left.
func joinOn(t testing.TB, m testJob, rank, n int) (*symm.World, error) {
	f := fake.New(n)
	t.Cleanup(func() {
		if l := f.Leaks().String(); l != "" {
			t.Errorf("rank %d did not release %s", rank, l)
		}
	})
	return processWorld(t.Context(), f, m, rank, n, rank, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
}

// TestJoinTimeout: who does not join in time is named, to all who came, as a timeout.
func TestJoinTimeout(t *testing.T) {
	if *onGPU {
		t.Skip("joining is the same without GPUs")
	}
	for _, c := range []struct {
		come    []int
		missing []int
	}{{[]int{0}, []int{1, 2}}, {[]int{1}, []int{0}}, {[]int{0, 1}, []int{2}}} {
		// Rank 1 may be so slow that rank 0 misses it as well: then both get more time.
		for limit := 300 * time.Millisecond; ; limit *= 4 {
			slow := false
			m := newJob(limit)
			errs := make(chan error)
			for _, rank := range c.come {
				wait := m
				if len(c.come) > 1 {
					wait.Timeout *= time.Duration(1 + 10*rank) // rank 0 knows more
				}
				go func() {
					_, err := joinOn(t, wait, rank, 3)
					errs <- err
				}()
			}
			for range c.come {
				var late *rendezvous.TimeoutError
				err := <-errs
				if errors.As(err, &late) && len(c.come) > 1 && limit < plenty && (late.Rank == 0 && slices.Equal(late.Missing, []int{1, 2}) || late.Rank == 1 && slices.Equal(late.Missing, []int{0})) {
					slow = true
				} else if !errors.Is(err, rendezvous.ErrTimeout) || late == nil || !slices.Equal(late.Missing, c.missing) {
					t.Errorf("%v without %v: %v", c.come, c.missing, err)
				}
			}
			if !slow {
				break
			}
		}
	}
}

// TestCloseOnExec looks at every descriptor that a world opens or receives.
func TestCloseOnExec(t *testing.T) {
	open := func() map[int]string {
		out := map[int]string{}
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range e {
			fd, _ := strconv.Atoi(d.Name())
			if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil {
				out[fd] = to
			}
		}
		return out
	}
	before := open()
	_, done := pairOf(t)
	defer done()
	seen := 0
	for fd, to := range open() {
		if before[fd] == to {
			continue
		}
		seen++
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d, %s: flags %d, %v", fd, to, flags, err)
		}
	}
	if seen < 4 { // both ends of a socket, two memories at least
		t.Errorf("only %d descriptors", seen)
	}
}

// TestNoPeerAccess: devices that cannot reach each other form no world of one process.
func TestNoPeerAccess(t *testing.T) {
	if *onGPU {
		t.Skip("the GPUs of this machine reach each other")
	}
	f := fake.New(3)
	f.Separate(1, 2)
	_, err := symm.NewLocalWorld(f, []int{0, 1, 2}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
	var apart *symm.NoPeerAccessError
	if !errors.As(err, &apart) || apart.Dev != 1 || apart.Peer != 2 || !strings.Contains(err.Error(), "device 1 cannot access the memory of device 2") {
		t.Errorf("got %v", err)
	}
	w, err := symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)})
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

// TestSharedDevice gives two processes one device, which nobody may have unless both say so.
func TestSharedDevice(t *testing.T) {
	if *onGPU {
		t.Skip("two ranks of one process, each as if it were a process, are for the fake driver")
	}
	for _, share := range []bool{false, true} {
		j := newJob(time.Minute)
		err := both(func(i int) error {
			w, err := processWorld(t.Context(), fake.New(2), j, i, 2, 1, symm.WorldOptions{Bytes: 8 << 20, Images: images(t), ShareDevice: share})
			if share {
				return errors.Join(err, w.Close())
			}
			if !errors.Is(err, symm.ErrSharedDevice) {
				return fmt.Errorf("got %v, %w", w, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("allowed: %v: %v", share, err)
		}
	}
}

// TestGroupsForgotten makes groups one after the other: nothing may stay of those that
// are closed.
func TestGroupsForgotten(t *testing.T) {
	ws, done := pairOf(t)
	defer done()
	for range 20 {
		err := both(func(i int) error {
			g, err := coll.NewGroup(t.Context(), ws[i], []int{0, 1}, smallGroup(false, 2))
			return errors.Join(err, g.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range ws {
		if len(w.Groups()) != 0 || w.InUse() != 0 {
			t.Errorf("rank %d keeps %d groups and %d bytes", i, len(w.Groups()), w.InUse())
		}
	}
}
