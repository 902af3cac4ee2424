package gomlx

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"weak"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

// compiled is a program, for any world of as many ranks.
type compiled struct {
	prog      *program.Program
	mod       *rt.Module
	constants []rt.Value // by input: what the text holds; no data where it is a parameter
	params    []int      // inputs that are parameters
	copies    []copied   // the other inputs, which are private
	initial   bool       // results are first values of variables
}

// compile makes a program of a computation, or finds the one that it has made of its text.
func (b *Backend) compile(n *builder) (*compiled, error) {
	text, vars := n.text(false), make([]bool, len(n.main.inputs))
	for i, name := range n.main.inputs {
		vars[i] = variable(name)
	}
	h := sha256.New()
	fmt.Fprintln(h, vars)
	io.WriteString(h, text)
	key := [sha256.Size]byte(h.Sum(nil))
	if err := n.dump(key); err != nil {
		return nil, err
	}
	b.mu.Lock()
	c := b.compiled.get(key)
	b.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := b.newCompiled(n, text, vars)
	if err != nil {
		return nil, errors.WithMessagef(err, "computation %q", n.name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compiled.put(key, c)
	return c, nil
}

// dump writes the computation into the folder for it, if there is one.
func (n *builder) dump(key [sha256.Size]byte) error {
	if n.b.dumps == "" {
		return nil
	}
	file := filepath.Join(n.b.dumps, fmt.Sprintf("%s-%.4x.mlir", strings.Map(fileRune, n.name), key))
	return errors.WithStack(os.WriteFile(file, []byte(n.text(true)), 0o666))
}

func (b *Backend) newCompiled(n *builder, text string, vars []bool) (*compiled, error) {
	m, err := stablehlo.Parse(n.name, text)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	m.Sharded(sdy.Given)
	p, err := m.Program()
	if err != nil {
		return nil, errors.WithStack(err)
	}
	c := &compiled{initial: n.initializes()}
	if p.Module.World == 1 {
		of, k := make([]bool, len(p.Constants)), 0 // by input
		for i, l := range p.Constants {
			if l == nil {
				of[i] = vars[k]
				k++
			}
		}
		c.copies = carry(p.Module.Funcs()[0], of)
	}
	c.prog, err = b.keep(fmt.Sprintf("%s\n%v", text, c.copies), func() (*program.Program, error) {
		if err := compile.Partition(p.Module, compile.PartitionOptions{NarrowSums: b.narrow}); err != nil {
			return nil, errors.WithStack(err)
		}
		ctx := b.context()
		r, err := compile.Compile(ctx, p.Module, compile.Target{Device: b.device()}, compile.Options{Pipeline: b.passes})
		if err != nil {
			return nil, errors.WithStack(canceled(ctx, err))
		}
		prog, err := r.Func(p.Module.Funcs()[0].Name).Program()
		return prog, errors.WithStack(err)
	})
	if err != nil {
		return nil, err
	}
	if b.memory > 0 && c.prog.Arena > b.memory {
		return nil, errors.Errorf("concert: %s on each device, and memory=%s: more devices along fsdp or model take less each", passes.Bytes(c.prog.Arena), passes.Bytes(b.memory))
	}
	if err := c.apart(); err != nil {
		return nil, err
	}
	if c.mod, err = rt.ModuleOf(c.prog); err != nil {
		return nil, errors.WithStack(err)
	}
	for i, in := range c.mod.Inputs {
		t := in.Tensors[0]
		v := rt.Value{DType: t.DType, Shape: t.Shape}
		if i < len(p.Constants) && p.Constants[i] != nil {
			v.Data = p.Constants[i].Expand()
		} else if i < len(p.Constants) {
			c.params = append(c.params, i)
		}
		c.constants = append(c.constants, v)
	}
	return c, nil
}

// fileRune is a rune of a computation's name as a file's name has it.
func fileRune(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '#' {
		return r
	}
	return '_'
}

// cache has the programs that were compiled last, by their text.
type cache struct {
	keys  [][sha256.Size]byte // the one used last is behind
	progs map[[sha256.Size]byte]*compiled
}

const cached = 64

func (k *cache) get(key [sha256.Size]byte) *compiled {
	c := k.progs[key]
	if c != nil {
		i := slices.Index(k.keys, key)
		k.keys = append(slices.Delete(k.keys, i, i+1), key)
	}
	return c
}

func (k *cache) put(key [sha256.Size]byte, c *compiled) {
	if k.progs == nil {
		k.progs = map[[sha256.Size]byte]*compiled{}
	}
	if k.get(key) != nil {
		return
	}
	if len(k.keys) == cached {
		delete(k.progs, k.keys[0])
		k.keys = slices.Delete(k.keys, 0, 1)
	}
	k.keys, k.progs[key] = append(k.keys, key), c
}

// loaded is a program in a world. What follows the second line is guarded by the world's lock.
type loaded struct {
	c     *compiled
	w     *world
	mod   *rt.Module               // of its own: a world has each once
	users int                      // computations that go on with each other's results
	wants []rt.Tensor              // where inputs go, by input
	there [][]weak.Pointer[Buffer] // by rank and input: what is there since the last run
	steps []*rt.Step               // by rank, once captured
	ran   bool                     // constants have come
	held  []weak.Pointer[Buffer]   // results that are where the next ones will
	rooms []*room                  // by result, nil where it is in the program's memory
	taken []*room                  // of variables that are the program's
}

// load adds a program to a world. A computation that takes results of another of the same text
// goes on where they are; others have memory of their own, so that none moves another's results.
func (w *world) load(c *compiled, inputs []compute.Buffer) (*loaded, error) {
	w.running.Lock()
	defer w.running.Unlock()
	for _, in := range inputs {
		if l := c.left(in); l != nil && l.w == w && l.users > 0 {
			l.users++
			return l, nil
		}
	}
	if err := w.sweep(); err != nil {
		return nil, err
	}
	rooms, err := w.rooms(c, inputs)
	if err != nil {
		return nil, err
	}
	return w.add(c, rooms)
}

// add adds a program, with memory of its own but for what is in rooms, by input or result; the world is locked.
func (w *world) add(c *compiled, rooms map[string]*room) (*loaded, error) {
	mod := *c.mod
	l := &loaded{c: c, w: w, mod: &mod, users: 1}
	ctx := w.b.context()
	err := w.each(func(j int, r *rt.Rank) error {
		bind := rt.Bindings{}
		for name, m := range rooms {
			bind[name] = m.on[j]
		}
		return r.Add(ctx, l.mod, bind)
	})
	if err != nil {
		return nil, err
	}
	l.take(rooms)
	l.steps = make([]*rt.Step, len(w.ranks))
	for range w.ranks {
		l.there = append(l.there, make([]weak.Pointer[Buffer], len(c.mod.Inputs)))
	}
	for _, in := range c.mod.Inputs {
		t, err := w.ranks[w.mine].In(l.mod, in.Tensors[0])
		if err != nil {
			return nil, errors.WithStack(err)
		}
		l.wants = append(l.wants, t)
	}
	return l, nil
}

// left is the program of that text that has left an input where it is, or nil. Of several processes
// each would find another one, depending on what it has read.
func (c *compiled) left(in compute.Buffer) *loaded {
	u, ok := in.(*Buffer)
	if !ok || u == nil || u.b.place != nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil || u.at.l.c != c {
		return nil
	}
	return u.at.l
}

// drop takes the program out of the world when no other computation has it. Results that somebody
// has are saved.
func (l *loaded) drop() {
	l.w.running.Lock()
	defer l.w.running.Unlock()
	if l.users == 0 {
		return
	}
	if l.users--; l.users > 0 || l.w.ranks == nil {
		return
	}
	l.save(nil)
	l.unload()
	l.w.empty(l.taken)
}

// unload gives a program's memory back.
func (l *loaded) unload() error {
	ctx := context.Background()
	return l.w.each(func(_ int, r *rt.Rank) error { return r.Drop(ctx, l.mod) })
}

// save brings results that somebody has to Go's memory, but those that next gives to the run
// that comes, where they are already.
func (l *loaded) save(next map[*Buffer]bool) error {
	for _, p := range l.held {
		u := p.Value()
		if u == nil || next[u] {
			continue
		}
		u.mu.Lock()
		var err error
		if u.at != nil && l.w.ranks[u.at.rank] == nil {
			u.at = nil // its own process saves it
		} else if u.at != nil {
			err = u.bring()
		}
		u.mu.Unlock()
		if err != nil {
			return err
		}
	}
	l.held = nil
	return nil
}

// run runs the program with the inputs of each rank. Devices that capture do so before it runs
// for the second time, and replay it from then on.
func (l *loaded) run(args [][]rt.Value) ([][]rt.Value, error) {
	outs := make([][]rt.Value, len(args))
	ctx := l.w.b.context()
	opts := rt.Options{KeepOutputs: true}
	step := func(x *rt.Exec) { rt.Interpret(x, l.c.prog) }
	err := l.w.each(func(i int, r *rt.Rank) (err error) {
		if _, ok := r.Device().(rt.Capturer); !ok || !l.ran {
			outs[i], err = rt.RunModule(ctx, r, l.mod, step, args[i], opts)
			return err
		}
		if l.steps[i] == nil {
			if l.steps[i], err = rt.Prepare(ctx, r, l.mod, step, opts, true); err != nil {
				return err
			}
		}
		outs[i], err = l.steps[i].Run(ctx, args[i])
		return err
	})
	l.ran = l.ran || err == nil
	return outs, canceled(ctx, err)
}

// canceled is the error of what the context has ended, also before it had begun.
func canceled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, rt.ErrCanceled) {
		return fmt.Errorf("%w: %w", rt.ErrCanceled, cause)
	}
	return err
}
