//go:build linux

package cuda

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// nothing takes launches and does nothing.
type nothing struct{ *fake.Driver }

func (nothing) Launch(driver.Ctx, driver.Stream, driver.Func, int, int, int, []byte) error {
	return nil
}
func (nothing) Run(driver.Ctx, []uint64) error { return nil }

// BenchmarkEnqueue is what this package adds to the driver's call that launches a
// prepared collective.
func BenchmarkEnqueue(b *testing.B) {
	f := fake.New(2)
	w, err := symm.NewLocalWorld(nothing{f}, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20, Images: images(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	g, err := coll.NewGroup(b.Context(), w, []int{0, 1}, smallGroup(false, 2))
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	m := g.Members()[0]
	s, err := f.StreamCreate(m.Rank.Ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer f.StreamDestroy(m.Rank.Ctx, s)
	off, err := w.Alloc(4096, 256)
	if err != nil {
		b.Fatal(err)
	}
	at := w.Addr(0, off)
	op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Algo: kernels.LL, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 4096}}}
	p, err := m.Prepare(op)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("prepared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := p.Enqueue(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("planned each time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := m.Enqueue(s, op); err != nil {
				b.Fatal(err)
			}
		}
	})
}
