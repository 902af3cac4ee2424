package hostrun

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

const livingText = `world %d
group @%s = %s

func @p%d(%%w: f32[64] {donate=0} !{role="parameter"}, %%x: f32[%d,64]) -> (f32[64]) {
  %%a = all_reduce.sum %%x on @%[2]s : async f32[%[5]d,64]
  %%s = wait_tensor %%a : f32[%[5]d,64]
  %%t = sum %%s {dims=[0]} : f32[64]
  %%new = add %%w, %%t : f32[64]
  return %%new
}
`

// Living changes a world while it lives: ten programs that share a buffer, and whose groups,
// streams and memory differ, are added to it, run and dropped in a loop. Some ranks fail or
// disagree now and then: all get an error of the right type, and go on.
type Living struct {
	Steps   int
	Kernels bool // the programs have kernels with source
	Capture bool // programs with odd numbers are captured, as a graph
	// Each, if it is not nil, is called at the end of each step, on every rank.
	Each func(rank, step int)
}

// living is one of the programs on a rank.
type living struct {
	k   int
	in  []rt.Value
	sum float64 // what a run adds to each element
	s   Step
	cap *rt.Step
}

// LivingGroup is the group of program number k: of all ranks in two orders, by a name of its own,
// or of pairs.
func LivingGroup(k, world int) (name string, ranks [][]int) {
	name, ranks = "all", [][]int{nil}
	for r := range world {
		ranks[0] = append([]int{r}, ranks[0]...)
	}
	switch k % 5 {
	case 1, 2:
		name = fmt.Sprintf("g%d", k)
	case 3, 4:
		name, ranks = fmt.Sprintf("pairs%d", k), nil
		for r := 0; r < world; r += 2 {
			ranks = append(ranks, []int{r, r + 1})
		}
	}
	return name, ranks
}

// program makes program number k.
func (l *Living) program(k, rank, world int) (*living, error) {
	name, ranks := LivingGroup(k, world)
	rows := 1 + 4*k
	text := strings.ReplaceAll(fmt.Sprint(ranks), " ", ", ")
	m, err := ir.Parse("living.ir", fmt.Sprintf(livingText, world, name, text, k, rows))
	if err != nil {
		return nil, err
	}
	p := &living{k: k}
	prog, err := lower.FuncWith(m.Funcs()[0], lower.Options{Kernels: l.Kernels})
	if err == nil {
		prog, err = prog.Isolate("w")
	}
	if err == nil {
		p.s, err = OfProgram(prog)
	}
	i := slices.IndexFunc(ranks, func(sub []int) bool { return slices.Contains(sub, rank) })
	for _, peer := range ranks[i] {
		p.sum += float64((peer + 1) * rows)
	}
	x := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(rank+1))), 64*rows)
	p.in = []rt.Value{{}, {DType: rt.F32, Shape: rt.Dims{int64(rows), 64}, Data: x}}
	return p, err
}

// add adds the program, and captures it if it is its turn.
func (p *living) add(ctx context.Context, r *rt.Rank, w *rt.Buffer, capture bool) error {
	if err := r.Add(ctx, p.s.Module, rt.Bindings{"w": w}); err != nil {
		return err
	}
	if !capture || p.k%2 == 0 {
		return nil
	}
	var err error
	p.cap, err = rt.Prepare(ctx, r, p.s.Module, p.s.Run, rt.Options{}, true)
	return err
}

// run runs the program once.
func (p *living) run(ctx context.Context, r *rt.Rank) error {
	var err error
	if p.cap != nil {
		_, err = p.cap.Run(ctx, p.in)
	} else {
		_, err = rt.RunModule(ctx, r, p.s.Module, p.s.Run, p.in, rt.Options{})
	}
	return err
}

// Run is the loop on one rank. All ranks run it.
func (l *Living) Run(ctx context.Context, r *rt.Rank) error {
	info := r.Info()
	before := info.ArenaBytes
	w, err := r.NewBuffer(ctx, "w", 256)
	if err != nil {
		return err
	}
	var all [12]*living
	for k := range all {
		if all[k], err = l.program(k, info.Rank, info.World); err != nil {
			return err
		}
	}
	order := rand.New(rand.NewPCG(7, 7)) // the same on all ranks
	var have [10]bool
	want := 0.0
	for step := range l.Steps {
		k := order.IntN(len(have))
		switch {
		case !have[k]:
			err, have[k] = all[k].add(ctx, r, w, l.Capture), true
		case order.IntN(2) == 0:
			if all[k].cap != nil && order.IntN(2) == 0 { // else Drop does
				err = all[k].cap.Close()
			}
			err, have[k] = errors.Join(err, r.Drop(ctx, all[k].s.Module)), false
			all[k].cap = nil
		}
		if err == nil {
			err = l.faults(ctx, r, step, &all, have[k], k)
		}
		if err == nil {
			want, err = l.runs(ctx, r, &all, &have, w, want)
		}
		if err != nil {
			return fmt.Errorf("step %d: program %d: %w", step, k, err)
		}
		if l.Each != nil {
			l.Each(info.Rank, step)
		}
	}
	for k, p := range all {
		if k >= len(have) || !have[k] {
			continue
		}
		if err := w.Free(ctx); err == nil {
			return errors.New("a buffer was freed that a module is bound to")
		}
		if err := r.Drop(ctx, p.s.Module); err != nil {
			return err
		}
	}
	if err := w.Free(ctx); err != nil {
		return err
	}
	if n := r.Info().ArenaBytes; n != before {
		return fmt.Errorf("%d bytes of the arena are left, of %d before", n, before)
	}
	return nil
}

// runs runs all programs there are, and looks at the buffer.
func (l *Living) runs(ctx context.Context, r *rt.Rank, all *[12]*living, have *[10]bool, w *rt.Buffer, want float64) (float64, error) {
	for k, is := range have {
		if !is {
			continue
		}
		if err := all[k].run(ctx, r); err != nil {
			return 0, fmt.Errorf("run of program %d: %w", k, err)
		}
		want += all[k].sum
	}
	view, err := w.View(0, rt.F32, 64)
	if err != nil {
		return 0, err
	}
	got, err := r.Download(view)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(got); i += 4 {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[i:])); float64(v) != want {
			return 0, fmt.Errorf("element %d is %v, want %v", i/4, v, want)
		}
	}
	if want < 1<<23 { // which f32 still counts
		return want, nil
	}
	return 0, r.Upload(view, make([]byte, 256))
}

// faults lets ranks fail or disagree at some steps.
func (l *Living) faults(ctx context.Context, r *rt.Rank, step int, all *[12]*living, have bool, k int) error {
	info := r.Info()
	odd := info.Rank == step%info.World
	other := all[10].s.Module
	switch {
	case step%15 == 5: // one brings another program
		if odd {
			other = all[11].s.Module
		}
		if err := r.Add(ctx, other, nil); !errors.Is(err, rt.ErrMismatch) || !strings.Contains(err.Error(), "at line 1:") {
			return fmt.Errorf("another program on one rank: %v", err)
		}
	case step%15 == 10: // one cannot
		var bind rt.Bindings
		if odd {
			bind = rt.Bindings{"nothing": nil}
		}
		err := r.Add(ctx, other, bind)
		var own *rt.CallError
		var theirs *rt.CanceledError
		if odd && !errors.As(err, &own) || !odd && (!errors.As(err, &theirs) || theirs.Origin != step%info.World) {
			return fmt.Errorf("one rank that cannot add: %v", err)
		}
	case step%15 == 13 && have: // one drops where the others add
		var err error
		if odd {
			err = r.Drop(ctx, all[k].s.Module)
		} else {
			err = r.Add(ctx, other, nil)
		}
		if !errors.Is(err, rt.ErrMismatch) {
			return fmt.Errorf("one rank that drops: %v", err)
		}
	}
	return nil
}
