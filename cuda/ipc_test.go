//go:build linux

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

const (
	sharedCount = 123_457
	sharedOff   = 4096 + 12
)

// all reads a buffer and fails unless every element is v.
func (c *childT) all(r *symm.Rank, b symm.Buffer, v float32) error {
	raw := make([]byte, b.Bytes())
	if err := c.drv.CopyOut(r.Ctx, r.Setup(), raw, b.At); err != nil {
		return err
	}
	for i := range b.Count {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != v {
			return fmt.Errorf("element %d is %v, not %v", i, got, v)
		}
	}
	return nil
}

// write fills a buffer, and returns when its device has done so.
func (c *childT) write(r *symm.Rank, b symm.Buffer, v float32) error {
	return errors.Join(c.drv.Memset32(r.Ctx, r.Setup(), b.At, math.Float32bits(v), b.Count), c.drv.StreamSync(r.Ctx, r.Setup()))
}

// export allocates on rank 0, fills all with 7 and hands a part to the others.
func (c *childT) export(r *symm.Rank, m testJob) (*symm.Shared, symm.Buffer, error) {
	s, err := r.NewShared(3 << 20)
	if err != nil {
		return nil, symm.Buffer{}, err
	}
	whole, err := s.Buffer(0, symm.F32, s.Bytes()/4)
	if err == nil {
		err = c.write(r, whole, 7)
	}
	var b symm.Buffer
	if err == nil {
		b, err = s.Buffer(sharedOff, symm.F32, sharedCount)
	}
	if err == nil {
		err = s.Export(context.Background(), m.Job, b, c.n-1)
	}
	return s, b, err
}

// tensor is written by its owner and read by all, then written by the others in turn.
func (c *childT) tensor(w *symm.World) error {
	r, ctx := w.Local()[0], context.Background()
	before := leak.Now()
	var s *symm.Shared
	var b symm.Buffer
	var err error
	if c.rank == 0 {
		s, b, err = c.export(r, jobOf(envSecond))
	} else {
		s, b, err = r.Import(ctx, jobOf(envSecond).Job)
	}
	if err != nil {
		return err
	}
	if b.Count != sharedCount || b.DType != symm.F32 {
		return fmt.Errorf("rank %d has %v", c.rank, b)
	}
	for turn := range c.n {
		v := float32(turn + 1) // 1 by the owner
		if turn == c.rank {
			if err := c.write(r, b, v); err != nil {
				return err
			}
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
		if err := c.all(r, b, v); err != nil {
			return fmt.Errorf("written by rank %d, read by rank %d: %w", turn, c.rank, err)
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
	}
	if c.rank == 0 {
		// Nothing around it was written. The owner goes first; the others keep the memory.
		below, err := s.Buffer(0, symm.F32, sharedOff/4)
		if err != nil {
			return err
		}
		above := symm.Buffer{At: b.At + driver.Ptr(b.Bytes()), Count: (s.Bytes() - sharedOff - b.Bytes()) / 4, DType: symm.F32}
		if err := errors.Join(c.all(r, below, 7), c.all(r, above, 7), s.Close()); err != nil {
			return err
		}
	}
	if err := w.Barrier(ctx); err != nil {
		return err
	}
	if c.rank != 0 {
		if err := errors.Join(c.all(r, b, float32(c.n)), s.Close(), s.Close()); err != nil {
			return err
		}
	}
	if os.Getenv("CONCERT_TEST_GPU") == "" {
		if l := before.More(); l != "" {
			return errors.New(l)
		}
	}
	return w.Barrier(ctx)
}

// orphan is a tensor whose exporter is killed: importers keep the memory, and who comes
// later is told.
func (c *childT) orphan() error {
	w, err := symm.NewSingleRankWorld(c.drv, c.rank, c.n, c.dev, c.o)
	if err != nil {
		return err
	}
	defer w.Close()
	r, m := w.Local()[0], jobOf(envJob)
	both, err := rendezvous.Join(context.Background(), jobOf(envSecond).Job, rendezvous.Place{Name: "orphan", Rank: c.rank, World: c.n})
	if err != nil {
		return err
	}
	defer both.Close()
	dead := make(chan struct{})
	defer both.Watch(func(e rendezvous.Event) {
		if e.Kind == rendezvous.Lost {
			close(dead)
		}
	})()
	if c.rank == 0 {
		s, _, err := c.export(r, m)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	s, b, err := r.Import(context.Background(), m.Job)
	if err != nil {
		return err
	}
	defer s.Close()
	<-dead // the exporter
	if err := errors.Join(c.all(r, b, 7), c.write(r, b, 8), c.all(r, b, 8)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var late *rendezvous.TimeoutError
	if _, _, err := r.Import(ctx, m.Job); !errors.As(err, &late) || !errors.Is(err, rendezvous.ErrTimeout) {
		return fmt.Errorf("a second tensor of a dead exporter: %v", err)
	}
	return nil
}

func TestTensorOfProcesses(t *testing.T) {
	for _, scenario := range []string{"tensor", "tensor by fabric"} {
		if *onGPU && scenario != "tensor" {
			continue // machines rarely permit it; TestFabric says whether this one does
		}
		t.Run(scenario, func(t *testing.T) {
			for i, o := range spawn(t, scenario, processRanks(t, 3)) {
				_, passed := line(o, "PASS")
				if leak, leaks := line(o, "LEAK"); !passed || o.err != nil || leaks {
					t.Errorf("rank %d: %v %q, not released: %q", i, o.err, o.lines, leak)
				}
			}
		})
	}
}

func TestTensorOfDeadProcess(t *testing.T) {
	for i, o := range spawn(t, "orphan", processRanks(t, 2)) {
		_, passed := line(o, "PASS")
		if leak, leaks := line(o, "LEAK"); i > 0 && (!passed || o.err != nil || leaks) {
			t.Errorf("rank %d: %v %q, not released: %q", i, o.err, o.lines, leak)
		}
	}
}

// lone opens a world of one rank on a device of a driver.
func lone(t testing.TB, drv driver.Driver, dev int) *symm.Rank {
	t.Helper()
	w := got(symm.NewSingleRankWorld(drv, 0, 1, dev, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}))(t)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w.Local()[0]
}

// between exports from one rank and imports into another of this process.
func between(ctx context.Context, t testing.TB, from, to *symm.Rank) (v float32, exp, imp error) {
	m := newJob(plenty)
	s, err := from.NewShared(1)
	if err != nil {
		return 0, err, nil
	}
	b, err := s.Buffer(64, symm.F32, 1)
	if err != nil {
		return 0, errors.Join(err, s.Close()), nil
	}
	d := from.World.Driver()
	if err := d.Memset32(from.Ctx, from.Setup(), b.At, math.Float32bits(3), 1); err != nil {
		return 0, errors.Join(err, s.Close()), nil
	}
	if err := d.StreamSync(from.Ctx, from.Setup()); err != nil {
		return 0, errors.Join(err, d.StreamSync(from.Ctx, from.Setup()), s.Close()), nil
	}
	ctx, end := m.within(ctx)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error)
	go func() {
		err := s.Export(ctx, m.Job, b, 1)
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	other, c, imp := to.Import(ctx, m.Job)
	if imp == nil {
		raw := make([]byte, 4)
		imp = to.World.Driver().CopyOut(to.Ctx, to.Setup(), raw, c.At)
		imp = errors.Join(imp, to.World.Driver().StreamSync(to.Ctx, to.Setup())) // the copy may not have waited
		v = math.Float32frombits(binary.LittleEndian.Uint32(raw))
	}
	exp = errors.Join(<-done, s.Close())
	if other != nil {
		imp = errors.Join(imp, other.Close())
	}
	return v, exp, imp
}

type noPeers struct{ driver.Driver }

func (noPeers) CanAccessPeer(dev, peer int) (bool, error) { return dev == peer, nil }

// sharingFake is a driver of two devices, of which nothing may be left when the test ends.
func sharingFake(t *testing.T) *fake.Driver {
	if *onGPU || process != nil {
		t.Skip("it changes what the driver says")
	}
	f := fake.New(2)
	t.Cleanup(func() {
		if l := f.Leaks().String(); l != "" {
			t.Errorf("not released: %s", l)
		}
	})
	return f
}

func TestImportFailures(t *testing.T) {
	f := sharingFake(t)
	t.Run("works", func(t *testing.T) {
		a, b := lone(t, f, 0), lone(t, f, 1)
		for _, to := range []*symm.Rank{a, b} {
			if v, exp, imp := between(t.Context(), t, a, to); exp != nil || imp != nil || v != 3 {
				t.Errorf("device %d: %v, %v, %v", to.Dev, exp, imp, v)
			}
		}
	})
	t.Run("no access", func(t *testing.T) {
		a, b := lone(t, f, 0), lone(t, noPeers{f}, 1)
		_, exp, imp := between(t.Context(), t, a, b)
		var no *symm.NoPeerAccessError
		if !errors.As(imp, &no) || no.Dev != 1 || no.Peer != 0 {
			t.Errorf("importer: %v", imp)
		}
		var told *symm.ImportError
		if !errors.As(exp, &told) || !strings.Contains(told.Reason, "cannot access the memory of device 0") {
			t.Errorf("exporter: %v", exp)
		}
	})
	t.Run("device not seen", func(t *testing.T) {
		small := fake.New(1)
		_, exp, imp := between(t.Context(), t, lone(t, f, 1), lone(t, small, 0))
		var foreign *symm.ForeignDeviceError
		var told *symm.ImportError
		if !errors.As(imp, &foreign) || !errors.As(exp, &told) {
			t.Errorf("%v, %v", exp, imp)
		}
	})
	t.Run("no way", func(t *testing.T) {
		f := fake.New(1)
		f.ShareBy(false, false, false)
		var none *driver.NoSharingError
		if _, err := lone(t, f, 0).NewShared(1); !errors.As(err, &none) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("closed by the world", func(t *testing.T) {
		w := got(symm.NewSingleRankWorld(f, 0, 1, 0, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}))(t)
		before := f.Leaks().String()
		a, b := got(w.Rank(0).NewShared(1))(t), got(w.Rank(0).NewShared(1))(t)
		if err := a.Close(); err != nil || f.Leaks().String() == before {
			t.Error(err, f.Leaks().String())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if _, err := w.Rank(0).NewShared(1); !errors.Is(err, symm.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// exportable is shared memory of a rank on the fake driver, and a buffer in it.
func exportable(t *testing.T) (*symm.Rank, *symm.Shared, symm.Buffer) {
	r := lone(t, sharingFake(t), 0)
	s := got(r.NewShared(100_000))(t)
	return r, s, got(s.Buffer(0, symm.U8, 100_000))(t)
}

func TestSharedArguments(t *testing.T) {
	r, s, b := exportable(t)
	ctx, m := t.Context(), rendezvous.NewJob("")
	if s.Bytes()%fake.Granularity != 0 || s.Bytes() < 100_000 {
		t.Errorf("%d bytes", s.Bytes())
	}
	does := func(_ symm.Buffer, err error) error { return err }
	for i, err := range []error{
		does(s.Buffer(s.Bytes(), symm.U8, 1)), does(s.Buffer(1, symm.F32, 1)), does(s.Buffer(0, symm.F32, 1<<62)), does(s.Buffer(1<<63, symm.U8, 1)),
		s.Export(ctx, m, symm.Buffer{At: b.At - 1, Count: 4, DType: symm.U8}, 1), s.Export(ctx, m, symm.Buffer{At: b.At, Count: s.Bytes() + 1, DType: symm.U8}, 1), s.Export(ctx, m, symm.Buffer{}, 1),
		s.Export(ctx, m, b, 0), s.Export(ctx, nil, b, 1), s.Export(ctx, &rendezvous.Job{ID: "x", Addr: "unix:@x"}, b, 1),
		func() error { _, err := r.NewShared(0); return err }(), func() error { _, err := r.NewShared(math.MaxUint64); return err }(),
		func() error { _, _, err := r.Import(ctx, nil); return err }(),
	} {
		var wrong *symm.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestExportFailures has exporters whose importer does not come, and the reverse.
func TestExportFailures(t *testing.T) {
	r, s, b := exportable(t)
	ctx, m := t.Context(), rendezvous.NewJob("")
	t.Run("nobody comes", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := s.Export(ctx, m, b, 2); !errors.Is(err, rendezvous.ErrTimeout) || !strings.Contains(err.Error(), "0 of 2 importers came") {
			t.Errorf("exporter: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var late *rendezvous.TimeoutError
		if _, _, err := r.Import(ctx, m); !errors.As(err, &late) {
			t.Errorf("importer: %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		m := rendezvous.NewJob("")
		why := errors.New("enough")
		for _, early := range []bool{true, false} {
			ctx, cancel := context.WithCancelCause(ctx)
			if early {
				cancel(why)
			} else {
				time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
			}
			if err := s.Export(ctx, m, b, 1); !errors.Is(err, why) || errors.Is(err, rendezvous.ErrTimeout) {
				t.Errorf("exporter: %v", err)
			}
			if _, _, err := r.Import(ctx, m); !errors.Is(err, why) || errors.Is(err, rendezvous.ErrTimeout) {
				t.Errorf("importer: %v", err)
			}
			cancel(nil)
		}
	})
	t.Run("another job", func(t *testing.T) {
		m := rendezvous.NewJob("")
		enough := errors.New("enough")
		waits, cancel := context.WithCancelCause(ctx)
		done := make(chan error)
		go func() { done <- s.Export(waits, m, b, 1) }()
		if _, _, err := r.Import(ctx, rendezvous.NewJob(m.Addr)); !errors.Is(err, rendezvous.ErrUnauthenticated) {
			t.Errorf("importer: %v", err)
		}
		cancel(enough) // it has waited on for who belongs to its job
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("exporter: %v", err)
		}
	})
	t.Run("a process of a world", func(t *testing.T) {
		conn, done := importer(t.Context(), t, rendezvous.NewJob(""), s, b, 1, errandT{Import: "a world"})
		defer conn.Close()
		var mismatch *symm.MismatchError
		if err := <-done; !errors.As(err, &mismatch) {
			t.Errorf("exporter: %v", err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		conn, done := importer(t.Context(), t, rendezvous.NewJob(""), s, b, 1, errandT{toImport, got(rendezvous.Machine())(t)})
		fds, err := conn.Receive(ctx, 64<<10, &struct{}{})
		rendezvous.CloseFiles(fds...)
		if err != nil || len(fds) != 1 {
			t.Errorf("%d descriptors, %v", len(fds), err)
		}
		conn.Close() // before it says that it has mapped the memory
		var lost *symm.PeerLostError
		if err := <-done; !errors.As(err, &lost) {
			t.Errorf("exporter: %v", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if err := s.Export(ctx, m, b, 1); !errors.Is(err, symm.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// What an importer says and hears, as it goes over the connection.
type (
	errandT struct {
		Import  string `json:"import"`
		Machine string `json:"machine"`
	}
	importedT struct {
		Used bool `json:"used"`
	}
)
