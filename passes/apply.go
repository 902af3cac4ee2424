package passes

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/seed-ee968945/concert/ir"
)

// apply runs a pass on every function of m. A panic of the pass becomes an
// error: whoever compiles a graph must not die of a broken pass.
//
// Functions of which none runs another, such as the stages of a pipeline, go side by side where
// the pass allows it. What is said of them is put together in their order, so nothing shows
// how many were under way: where one fails, the others still go, and the first is named.
func (r *run) apply(s *step, m *ir.Module) (*Context, error) {
	all := r.context(s)
	called := bodies(m)
	funcs := append([]*ir.Func(nil), m.Funcs()...)
	width := 1
	if s.pass.FunctionPass && len(called) == 0 && r.Log == nil && r.Enable == nil {
		width = min(runtime.GOMAXPROCS(0), len(funcs))
	}
	ctxs, errs := make([]*Context, len(funcs)), make([]error, len(funcs))
	var wg sync.WaitGroup
	next := make(chan int, len(funcs))
	for i := range funcs {
		next <- i
	}
	close(next)
	work := func() {
		for i := range next {
			if m.Func(funcs[i].Name) != funcs[i] {
				continue // nobody runs it any more
			}
			ctxs[i] = r.context(s)
			if errs[i] = r.applyTo(ctxs[i], s, funcs[i]); errs[i] != nil && (!s.pass.FunctionPass || r.ctx.Err() != nil) {
				return
			}
			removeLeft(m, called)
		}
	}
	for range width - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for i, err := range errs {
		if ctxs[i] != nil {
			all.add(ctxs[i])
		}
		if err != nil {
			return all, err
		}
	}
	if all.err != nil {
		return all, fmt.Errorf("pass %s %w", s.pass.Name, all.err)
	}
	return all, nil
}

// context is what a pass gets for one function.
func (r *run) context(s *step) *Context {
	ctx := &Context{
		Log: r.log.With("pass", s.pass.Name), pass: s.pass, options: s.values,
		stats: make([]float64, len(s.pass.Stats)), costs: r.Costs, Ctx: r.ctx,
	}
	if r.pattern != nil || r.Enable != nil {
		ctx.enable = func(site string) bool {
			return r.pattern.Enabled(site) && (r.Enable == nil || r.Enable(site))
		}
	}
	return ctx
}

// applyTo runs a pass on one function.
func (r *run) applyTo(ctx *Context, s *step, f *ir.Func) (err error) {
	defer func() {
		if p := recover(); p == (ended{}) {
			err = r.ctx.Err()
		} else if p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	ctx.fn = f.Name
	if err := s.pass.Run(ctx, f); err != nil {
		return fmt.Errorf("@%s: %w", f.Name, err)
	}
	return nil
}

// add takes what a pass has said of one more function.
func (c *Context) add(o *Context) {
	for k := range o.stats {
		c.stats[k] += o.stats[k]
	}
	c.records = append(c.records, o.records...)
	if c.err == nil {
		c.err = o.err
	}
}
