package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/program"
)

// extents are the regions of an arena that are given out, in order. All ranks give out the
// same, since they make the same changes in the same order.
type extents []Region

// take finds the first room for that many bytes below a limit. No bytes need none.
func (e *extents) take(bytes, limit int64) (Region, error) {
	if bytes < 0 || bytes > limit {
		return Region{}, fmt.Errorf("%d bytes, an arena has %d at most", bytes, limit)
	}
	if bytes == 0 {
		return Region{}, nil
	}
	lo := int64(0)
	for i, used := range *e {
		if lo+bytes <= used.Lo {
			*e = slices.Insert(*e, i, Region{lo, lo + bytes})
			return (*e)[i], nil
		}
		lo = (used.Hi + ArenaAlign - 1) / ArenaAlign * ArenaAlign
	}
	if lo > limit-bytes {
		return Region{}, fmt.Errorf("the arenas of modules and buffers add up to more than %d bytes", limit)
	}
	*e = append(*e, Region{lo, lo + bytes})
	return Region{lo, lo + bytes}, nil
}

func (e *extents) free(at Region) {
	*e = slices.DeleteFunc(*e, func(used Region) bool { return used == at })
}

// end is where the last one ends.
func (e extents) end() int64 {
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1].Hi
}

// member is a group of the world, and how many modules have it.
type member struct {
	Group
	users int
	made  bool // the device knows it
}

// loaded is a module's place on a rank.
type loaded struct {
	m      *Module
	at     Region
	bound  []bound   // what is in buffers instead, by place in the module
	groups []*member // of the module
	events []Event
	unit   int            // its number among the modules
	grown  bool           // the device has memory there
	built  bool           // its kernels have been compiled
	steps  map[*Step]bool // that have been captured
	codes  map[string]int // its kernels by name

	streams []*namedStream             // by stream of the module
	memo    map[*program.Program]*memo // of programs that were interpreted
	calls   []*called                  // of emitted code, by place in the step
	checked map[int][]Tensor           // by kernel: parameters that its body was checked for
	sized   map[int]sized              // by kernel that takes sizes: for those of its last launch
	planned map[string]string          // what the device has planned the step to communicate, by sizes; see plan
	across  map[string]bool            // by group: of a stage, whether ranks of others are in it
}

// newLoaded is module number unit of a rank, without its place and its events.
func newLoaded(m *Module, unit int) *loaded {
	l := &loaded{m: m, unit: unit, codes: map[string]int{}, checked: map[int][]Tensor{}, steps: map[*Step]bool{}, across: map[string]bool{}}
	for i := range m.Kernels {
		l.codes[m.Kernels[i].Name] = i
	}
	return l
}

// bound says that a region of a module's arena is a buffer of the world.
type bound struct {
	at     Region
	buffer *Buffer
}

// place moves a tensor of the module, whose bytes begin at lo, to the rank's arena.
func (l *loaded) place(t Tensor, lo int64) Tensor {
	if b := l.boundAt(lo); b != nil {
		return t.At(b.buffer.at.Lo - b.at.Lo)
	}
	return t.At(l.at.Lo)
}

// boundAt is the buffer that a byte of the module's arena is in, nil if it is none.
func (l *loaded) boundAt(lo int64) *bound {
	for i := range l.bound {
		if b := &l.bound[i]; b.at.Lo <= lo && lo < b.at.Hi {
			return b
		}
	}
	return nil
}

// own is how much of the module's arena has to be memory: not what is in buffers, where it
// stands at the end, as program.Apart puts it.
func (l *loaded) own() int64 {
	n := l.m.Arena
	for _, b := range slices.Backward(l.bound) {
		if b.at.Hi+program.Align <= n {
			break
		}
		n = b.at.Lo
	}
	return n
}

// inBuffer reports whether a parameter is in a buffer.
func (l *loaded) inBuffer(q *Param) bool { return q.Room > 0 && l.boundAt(q.Tensors[0].Off) != nil }

// load checks a module and gives it its place, groups and number.
func (r *Rank) load(m *Module, bind Bindings) (*loaded, error) {
	if m == nil || r.loaded[m] != nil {
		return nil, errors.New("a module is nil or given twice")
	}
	if err := m.check(r.env.World); err != nil {
		return nil, err
	}
	if m.Joint != "" && !slices.Contains(m.Ranks, r.env.Rank) {
		return nil, fmt.Errorf("module %s: this stage is for ranks %v", m.Name, m.Ranks)
	}
	l := newLoaded(m, r.units)
	if err := l.bind(r, bind); err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Name, err)
	}
	for _, g := range m.Groups {
		if h := r.group(g.Name); h != nil && !h.Equal(g) {
			return nil, fmt.Errorf("module %s: group %q is %v here and %v elsewhere", m.Name, g.Name, g.Ranks, h.Ranks)
		}
	}
	var err error
	if l.at, err = r.arena.take(l.own(), Stride); err != nil {
		return nil, err
	}
	for _, g := range m.Groups {
		members, _ := g.Find(r.env.Rank)
		g.CrossStage = m.Joint != "" && slices.ContainsFunc(members, func(q int) bool { return !slices.Contains(m.Ranks, q) })
		l.groups, l.across[g.Name] = append(l.groups, r.join(g)), g.CrossStage
	}
	r.units++
	return l, nil
}

func (r *Rank) group(name string) *member {
	if i := slices.IndexFunc(r.groups, func(h *member) bool { return h.Name == name }); i >= 0 {
		return r.groups[i]
	}
	return nil
}

// join counts a user of a group.
func (r *Rank) join(g Group) *member {
	h := r.group(g.Name)
	if h == nil {
		h = &member{Group: g}
		r.groups = append(r.groups, h)
	}
	h.CrossStage = h.CrossStage || g.CrossStage && !h.made
	h.users++
	return h
}

// compile readies a module's kernels.
func (r *Rank) compile(l *loaded) error {
	l.built = true // in part, if it fails
	m := l.m
	return r.dev.Compile(l.unit, Unit{Name: m.Name, Source: m.Source, Flags: m.Flags, Kernels: m.Kernels})
}

// grow turns a module's place into memory.
func (r *Rank) grow(ctx context.Context, l *loaded) error {
	if l.at.Lo == l.at.Hi {
		return nil
	}
	err := r.dev.Grow(ctx, l.at)
	l.grown = err == nil
	return err
}

// ready makes all else that a module needs: groups, kernels, streams and events.
func (r *Rank) ready(ctx context.Context, l *loaded) error {
	if err := r.checkCalls(l.m); err != nil {
		return err
	}
	if s, ok := r.dev.(StageRunner); l.m.Joint != "" && !(ok && s.RunsStages()) {
		return fmt.Errorf("module %s is one of stages, which the device does not run: %w", l.m.Name, ErrUnsupported)
	}
	if err := r.addGroups(ctx, l.groups); err != nil {
		return err
	}
	if err := r.dev.Load(l.unit); err != nil {
		return err
	}
	for _, name := range l.m.Streams {
		s, err := r.stream(name)
		if err != nil {
			return err
		}
		l.streams = append(l.streams, s)
	}
	for range l.m.Events {
		e, err := r.dev.NewEvent()
		if err != nil {
			return err
		}
		l.events = append(l.events, e)
	}
	if slices.ContainsFunc(l.m.Inputs, func(q Param) bool { return q.Async }) && r.inbound == 0 {
		s, err := r.dev.NewStream("inbound")
		if err != nil {
			return err
		}
		r.inbound = s + 1
	}
	return nil
}

func (r *Rank) addGroups(ctx context.Context, groups []*member) error {
	for _, h := range groups {
		if h.made {
			continue
		}
		if err := r.dev.AddGroup(ctx, h.Group); err != nil {
			return err
		}
		h.made = true
	}
	return nil
}

// unload undoes load, grow and ready, as far as they went, in the opposite order.
func (r *Rank) unload(l *loaded) error {
	r.dismiss(l)
	var errs []error
	for s := range l.steps {
		errs = append(errs, s.cap.Close())
	}
	for _, e := range l.events {
		errs = append(errs, r.dev.DropEvent(e))
	}
	for i := range slices.Backward(l.streams) {
		errs = append(errs, r.dropStream(l.m.Streams[i]))
	}
	if l.built {
		errs = append(errs, r.dev.Unload(l.unit))
	}
	for _, g := range slices.Backward(l.groups) {
		if g.users--; g.users == 0 && g.made {
			errs = append(errs, r.dev.DropGroup(g.Name))
		}
	}
	r.groups = slices.DeleteFunc(r.groups, func(g *member) bool { return g.users == 0 })
	if l.grown {
		errs = append(errs, r.dev.Shrink(l.at))
	}
	r.arena.free(l.at)
	return errors.Join(errs...)
}

// layOut gives the modules that the world begins with their places.
func (r *Rank) layOut(mods []*Module, user int64) ([]*loaded, error) {
	all := make([]int, r.env.World)
	for i := range all {
		all[i] = i
	}
	r.join(Group{Name: worldGroup, Ranks: [][]int{all}})
	var news []*loaded
	for i, m := range mods {
		if slices.Contains(mods[:i], m) {
			return nil, errors.New("a module is nil or given twice")
		}
		l, err := r.load(m, nil)
		if err != nil {
			return nil, err
		}
		news = append(news, l)
	}
	if user < 0 {
		return nil, fmt.Errorf("%d user bytes", user)
	}
	var err error
	r.user, err = r.arena.take(user, Stride)
	return news, err
}

// admit lets a module run.
func (r *Rank) admit(l *loaded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded[l.m] = l
	if l.m.Digest != "" {
		r.byDigest[l.m.Digest] = l.m
	}
	clear(r.programs)
	for _, b := range l.bound {
		b.buffer.users++
	}
}

// dismiss undoes admit.
func (r *Rank) dismiss(l *loaded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded[l.m] == l {
		delete(r.loaded, l.m)
		delete(r.works, l.m)
		for _, b := range l.bound {
			b.buffer.users--
		}
		if r.byDigest[l.m.Digest] == l.m {
			delete(r.byDigest, l.m.Digest)
		}
		for m := range r.loaded { // another one of the same program
			if m.Digest != "" && m.Digest == l.m.Digest {
				r.byDigest[m.Digest] = m
			}
		}
		clear(r.programs)
	}
}

// find is where a module is, nil if it is not loaded.
func (r *Rank) find(m *Module) *loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loaded[m]
}
