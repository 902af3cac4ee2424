package host_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

const savingText = `program @fw world 2
stream @compute
events 0
arena 1024
buffer %x at 0 size 256
buffer %t at 512 size 512
buffer %s at 512 size 256
input x = %x: f32[64]
output s = %s: f32[64]
body
@compute launch neg (%x: f32[64]) -> (%t: f32[64]) from %t
@compute launch exp (%x: f32[64]) -> (%s: f32[64]) from %s
`

// bound adds a program to a world, with buffers for some of its values.
func bound(ctx context.Context, r *rt.Rank, p *program.Program, bind rt.Bindings) (*rt.Module, error) {
	m, err := rt.ModuleOf(p)
	if err != nil {
		return nil, err
	}
	return m, r.Add(ctx, m, bind)
}

// badBindings binds what does not fit to program p and its form with s apart, whose buffer is s.
func badBindings(ctx context.Context, r *rt.Rank, p, apart *program.Program, s *rt.Buffer) error {
	small, err := r.NewBuffer(ctx, "small", 128)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		p    *program.Program
		bind rt.Bindings
		want string
	}{
		{p, rt.Bindings{"s": s}, "s cannot lie in a buffer: it shares bytes with others"},
		{apart, rt.Bindings{"s": small}, "s takes 256 bytes, buffer small has 128"},
		{apart, rt.Bindings{"s": s, "q": s, "a": s}, "it has no input or output a, q"},
	} {
		if _, err := bound(ctx, r, c.p, c.bind); err == nil || !strings.Contains(err.Error(), c.want) {
			return fmt.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := r.NewBuffer(ctx, "s", 256); err == nil || !strings.Contains(err.Error(), "there is one of that name") {
		return fmt.Errorf("a second buffer: %v", err)
	}
	if _, err := s.View(128, rt.F32, 64); err == nil {
		return fmt.Errorf("a view beyond the end")
	}
	return nil
}

// TestBindings: what may be in a buffer, and what refuses to.
func TestBindings(t *testing.T) {
	p, err := program.Parse("fw", savingText)
	if err != nil {
		t.Fatal(err)
	}
	apart, err := p.Isolate("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Isolate("z"); err == nil || !strings.Contains(err.Error(), "no input or output z") {
		t.Errorf("an output that is not there: %v", err)
	}
	local(t, 2, rt.Config{}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		s, err := r.NewBuffer(ctx, "s", 256)
		if err != nil {
			return err
		}
		if err := badBindings(ctx, r, p, apart, s); err != nil {
			return err
		}
		m, err := bound(ctx, r, apart, rt.Bindings{"s": s})
		if err != nil {
			return err
		}
		if n := r.Info().ArenaBytes; n != 2*rt.ArenaAlign+1024 {
			return fmt.Errorf("%d bytes of the arena: what lies in a buffer has memory twice", n)
		}
		ones := make([]float64, 64)
		out, err := rt.Run(ctx, r, apart, []rt.Value{{DType: rt.F32, Shape: rt.Dims{64}, Data: bytesOf(rt.F32, ones...)}}, rt.Options{})
		if err != nil {
			return err
		}
		view, err := s.View(0, rt.F32, 64)
		if err != nil {
			return err
		}
		if out[0].Data != nil || out[0].Place.String() != view.String() {
			return fmt.Errorf("the output is at %v, its buffer at %v", out[0].Place, view)
		}
		data, err := r.Download(view)
		if err != nil || numbersOf(rt.F32, data)[63] != 1 {
			return fmt.Errorf("the buffer holds %v (%v)", data, err)
		}
		if err := r.Drop(ctx, m); err != nil {
			return err
		}
		if _, err := rt.Run(ctx, r, apart, make([]rt.Value, 1), rt.Options{}); err == nil || !strings.Contains(err.Error(), "dropped") {
			return fmt.Errorf("a run of a dropped module: %v", err)
		}
		if err := s.Free(ctx); err != nil {
			return err
		}
		if _, err := r.Download(view); err == nil || !strings.Contains(err.Error(), "outside of the arena") {
			return fmt.Errorf("a view of a freed buffer: %v", err)
		}
		if err := s.Free(ctx); err == nil || !strings.Contains(err.Error(), "it has been freed") {
			return fmt.Errorf("freed twice: %v", err)
		}
		return nil
	})
}
