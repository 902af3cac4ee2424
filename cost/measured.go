package cost

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// MeasuredImpl is the implementation that a Measured's collectives are entered
// under in a Table.
const MeasuredImpl = "concert"

// AloneImpl is the implementation under which they are in the form that they have with
// nothing beside them.
const AloneImpl = "concert-alone"

// Measured is what a calibration found on a machine: times of instructions of
// lowered programs, of collectives, and how they disturb each other. Its JSON form
// is a file; entries are sorted, so that equal findings are equal bytes.
//
// Decisions that read a table must be the same on all ranks: give all of them the
// same file.
type Measured struct {
	Machine string `json:"machine"` // what was measured, for people
	Ranks   int    `json:"ranks"`
	// Digest is the SHA-256 of the file without it, in hexadecimal.
	Digest string `json:"digest"`
	// EdgeUs is the time from an end on one stream to the beginning on another that
	// waits for it.
	EdgeUs float64 `json:"edge_us"`
	// MemoryScale is the time of generated kernels over the sum of what the nodes in
	// them were said to cost; 0 if that was not measured.
	MemoryScale float64 `json:"memory_scale,omitempty"`
	// StepUs is what a step takes besides what it does: from its start until the first
	// call begins, and from the end of the last until that of the step.
	StepUs       float64       `json:"step_us,omitempty"`
	Instructions []Instruction `json:"instructions"`     // ascending by key
	Chains       []Instruction `json:"chains,omitempty"` // ascending by key (program.Program.ChainKey)
	Collectives  []Collective  `json:"collectives"`      // ascending by op, ranks, bytes
	Beside       []Beside      `json:"beside,omitempty"`
}

// Instruction is the time of one instruction, by its key (program.Program.CostKey).
type Instruction struct {
	Key string  `json:"key"`
	Us  float64 `json:"us"`
	// Late says that it is of a program that was made with the rest of the table. Apply
	// passes it over, so that the same program is made again, of which all is known.
	Late bool `json:"late,omitempty"`
	// Speed, of a collective that has compute beside it or of a chain that has
	// collectives beside it, is how fast it goes on meanwhile, as a part of its speed
	// alone; 0 if that was not measured.
	Speed float64 `json:"speed,omitempty"`
}

// Collective is the time of a collective of one tensor over that many bytes, counted
// as in a Table, in the form that it has beside compute.
type Collective struct {
	Op    string  `json:"op"`
	Ranks int     `json:"ranks"`
	Bytes int64   `json:"bytes"`
	Us    float64 `json:"us"`
	// AloneUs is its time in the form that it has with nothing beside it; 0 if that was
	// not measured.
	AloneUs float64 `json:"alone_us,omitempty"`
}

// Beside is how fast a launch and a collective go on while both run, as parts of
// their speeds alone.
type Beside struct {
	Launch     string  `json:"launch"`     // op: matmul, fused, ...
	Collective string  `json:"collective"` // op
	Compute    float64 `json:"compute"`
	Comm       float64 `json:"comm"`
}

// ReadMeasured reads a calibration's JSON and checks its digest. name is what errors
// call it.
func ReadMeasured(name string, r io.Reader) (*Measured, error) {
	m := new(Measured)
	if err := readJSON(name, r, m, m.check); err != nil {
		return nil, err
	}
	want, err := m.digest()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if m.Digest != want {
		return nil, fmt.Errorf("%s: the digest is %.12s, the contents' %.12s: the file was edited; calibrate again", name, m.Digest, want)
	}
	return m, nil
}

// check reports the first value that no calibration writes.
func (m *Measured) check() error {
	part := func(path string, v float64) error { // of a speed; 0: it was not measured
		if !(v >= 0 && v <= 1) {
			return &figureError{path, fmt.Sprintf("a speed of %v is no part of 1", v)}
		}
		return nil
	}
	for _, list := range []struct {
		path    string
		entries []Instruction
	}{{"instructions", m.Instructions}, {"chains", m.Chains}} {
		for i, e := range list.entries {
			at := fmt.Sprintf("%s.%d.", list.path, i)
			if err := errors.Join(figure(at+"us", e.Us, false), part(at+"speed", e.Speed)); err != nil {
				return err
			}
		}
	}
	for i, c := range m.Collectives {
		at := fmt.Sprintf("collectives.%d.", i)
		if c.Ranks < 1 || c.Ranks > ir.MaxWorld || c.Bytes < 0 {
			return &figureError{at + "ranks", fmt.Sprintf("no collective has %d bytes on %d ranks", c.Bytes, c.Ranks)}
		}
		if err := errors.Join(figure(at+"us", c.Us, true), figure(at+"alone_us", c.AloneUs, false)); err != nil {
			return err
		}
	}
	for i, b := range m.Beside {
		at := fmt.Sprintf("beside.%d.", i)
		if err := errors.Join(figure(at+"compute", b.Compute, true), part(at+"compute", b.Compute), figure(at+"comm", b.Comm, true), part(at+"comm", b.Comm)); err != nil {
			return err
		}
	}
	return errors.Join(figure("edge_us", m.EdgeUs, false), figure("memory_scale", m.MemoryScale, false), figure("step_us", m.StepUs, false))
}

// WriteTo sorts m, sets its digest and writes it.
func (m *Measured) WriteTo(w io.Writer) (int64, error) {
	for _, list := range [][]Instruction{m.Instructions, m.Chains} {
		slices.SortFunc(list, func(a, b Instruction) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortFunc(m.Collectives, func(a, b Collective) int {
		if c := strings.Compare(a.Op, b.Op); c != 0 {
			return c
		}
		if a.Ranks != b.Ranks {
			return a.Ranks - b.Ranks
		}
		return int(min(max(a.Bytes-b.Bytes, -1), 1))
	})
	slices.SortFunc(m.Beside, func(a, b Beside) int {
		if c := strings.Compare(a.Launch, b.Launch); c != 0 {
			return c
		}
		return strings.Compare(a.Collective, b.Collective)
	})
	if err := m.check(); err != nil {
		return 0, err
	}
	var err error
	if m.Digest, err = m.digest(); err != nil {
		return 0, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // keys have arrows
	e.SetIndent("", " ")
	if err := e.Encode(m); err != nil {
		return 0, err
	}
	return b.WriteTo(w)
}

func (m *Measured) digest() (string, error) {
	bare := *m
	bare.Digest = ""
	text, err := json.Marshal(&bare)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

// Clone is a copy that shares nothing with m.
func (m *Measured) Clone() *Measured {
	out := *m
	out.Instructions, out.Chains = slices.Clone(m.Instructions), slices.Clone(m.Chains)
	out.Collectives, out.Beside = slices.Clone(m.Collectives), slices.Clone(m.Beside)
	return &out
}

// Micros is the time of the instruction of that key.
func (m *Measured) Micros(key string) (float64, bool) {
	i, ok := find(m.Instructions, key)
	if !ok {
		return 0, false
	}
	return m.Instructions[i].Us, true
}

// ChainMicros is the time of the chain of that key.
func (m *Measured) ChainMicros(key string) (float64, bool) {
	i, ok := find(m.Chains, key)
	if !ok {
		return 0, false
	}
	return m.Chains[i].Us, true
}

// Speed is how fast the collective of that key goes on beside compute, as a part of
// its speed alone.
func (m *Measured) Speed(key string) (float64, bool) {
	i, ok := find(m.Instructions, key)
	if !ok || m.Instructions[i].Speed == 0 {
		return 0, false
	}
	return m.Instructions[i].Speed, true
}

// ChainSpeed is how fast the chain of that key goes on beside collectives, as a part of
// its speed alone.
func (m *Measured) ChainSpeed(key string) (float64, bool) {
	i, ok := find(m.Chains, key)
	if !ok || m.Chains[i].Speed == 0 {
		return 0, false
	}
	return m.Chains[i].Speed, true
}

func find(list []Instruction, key string) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(e Instruction, k string) int { return strings.Compare(e.Key, k) })
}

// Table is the collectives as curves, of the implementations MeasuredImpl and AloneImpl.
func (m *Measured) Table() *Table {
	t := &Table{}
	for _, c := range m.Collectives {
		t.Add(c.Op, MeasuredImpl, c.Ranks, Point{c.Bytes, c.Us})
		if c.AloneUs > 0 {
			t.Add(c.Op, AloneImpl, c.Ranks, Point{c.Bytes, c.AloneUs})
		}
	}
	return t
}

// Speeds are those of a launch and a collective that run beside each other, by op: of
// the pair that was measured, else the mean of those with the same launch, else of
// all, else 1.
func (m *Measured) Speeds(launch, collective string) (compute, comm float64) {
	for _, alike := range []func(b *Beside) bool{
		func(b *Beside) bool { return b.Launch == launch && b.Collective == collective },
		func(b *Beside) bool { return b.Launch == launch },
		func(*Beside) bool { return true },
	} {
		n := 0.0
		compute, comm = 0, 0
		for i := range m.Beside {
			if b := &m.Beside[i]; alike(b) {
				compute, comm, n = compute+b.Compute, comm+b.Comm, n+1
			}
		}
		if n > 0 {
			return compute / n, comm / n
		}
	}
	return 1, 1
}

// Model is base with what was measured of collectives in the place of its table. A base
// whose table is of this runtime's collectives, too, keeps what was not measured; without
// any measurement of collectives it is base.
func (m *Measured) Model(base *Model) *Model {
	out := *base
	if len(m.Collectives) == 0 {
		return &out
	}
	t := m.Table()
	if base.Impl == MeasuredImpl && base.Table != nil {
		all := &Table{PerRankMicros: base.Table.PerRankMicros}
		for _, c := range base.Table.curves {
			if !t.has(c.op, c.impl, c.ranks) {
				all.curves = append(all.curves, c)
			}
		}
		all.Merge(t)
		t = all
	}
	out.Table, out.Impl = t, MeasuredImpl
	return &out
}

// Launch says which nodes of a function one instruction of its program does.
type Launch struct {
	Key   string   // of the instruction
	Nodes []string // by name
}

// Apply gives the nodes of f the costs that were measured. Collectives get theirs by
// the curves. The nodes of a launch of which something was measured share its time in
// proportion to what they cost so far. launches may be empty: they are known only once
// f was lowered, and a program made with these costs may have others. Other nodes of
// class compute get the time of an instruction that does the same on whatever layout,
// others MemoryScale times what they cost so far, or without a cost base says. Nodes
// of which nothing was measured keep their cost. Late instructions do not count. Nodes that
// have got a cost are entered into from, unless it is nil.
func (m *Measured) Apply(f *ir.Func, base *Model, launches []Launch, from map[*ir.Node]Source) {
	set := func(n *ir.Node, ms float64) {
		f.SetCost(n, ms)
		if from != nil {
			from[n] = Calibrated
		}
	}
	done := m.share(f, base, launches, set)
	loose := map[string]float64{}
	for _, e := range m.Instructions {
		if e.Late {
			continue
		}
		k := withoutStrides(e.Key)
		if us, ok := loose[k]; !ok || e.Us < us {
			loose[k] = e.Us
		}
	}
	model := m.Model(base)
	for _, n := range f.Order() {
		if done[n] {
			continue
		}
		switch n.Op().Class() {
		case ir.ClassCollective:
			if model.Impl != MeasuredImpl {
				continue
			}
			if ms, from := model.unscaled(n.Op(), n.Group(), CommBytes(n), false); from == Tabled {
				set(n, ms)
			}
		case ir.ClassCompute:
			if us, ok := loose[nodeKey(n)]; ok {
				set(n, us/1e3)
			}
		case ir.ClassMemory:
			if ms, ok := base.NodeMs(n); ok && m.MemoryScale > 0 && len(launches) == 0 {
				set(n, ms*m.MemoryScale)
			}
		}
	}
}

// share spreads the times of launches over their nodes, and reports which have theirs.
func (m *Measured) share(f *ir.Func, base *Model, launches []Launch, set func(*ir.Node, float64)) map[*ir.Node]bool {
	done := map[*ir.Node]bool{}
	for _, l := range launches {
		i, ok := find(m.Instructions, l.Key)
		if !ok || m.Instructions[i].Late {
			continue
		}
		us := m.Instructions[i].Us
		var nodes []*ir.Node
		var costs []float64
		sum := 0.0
		for _, name := range l.Nodes {
			n := f.Lookup(name)
			if n == nil || done[n] || n.Op().IsCollective() {
				continue
			}
			if c := n.Op().Class(); c != ir.ClassCompute && c != ir.ClassMemory {
				continue
			}
			ms, _ := base.NodeMs(n)
			nodes, costs, sum = append(nodes, n), append(costs, ms), sum+ms
		}
		for i, n := range nodes {
			part := 1 / float64(len(nodes))
			if sum > 0 {
				part = costs[i] / sum
			}
			set(n, us/1e3*part)
			done[n] = true
		}
	}
	return done
}

// nodeKey is the key of a node's launch, without strides.
func nodeKey(n *ir.Node) string {
	mod := n.Func().Module()
	var b strings.Builder
	b.WriteString(n.Op().Name())
	if text := n.Attrs().String(); text != "" {
		b.WriteByte(' ')
		b.WriteString(text)
	}
	add := func(t ir.Type) {
		fmt.Fprintf(&b, " %v[", t.DType())
		for i, d := range t.Shape() {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(&b, mod.Hint(d))
		}
		b.WriteByte(']')
	}
	for _, a := range n.DeclaredArgs() {
		add(a.Type())
	}
	b.WriteString(" ->")
	for _, r := range n.DeclaredResults() {
		add(r.Type())
	}
	return b.String()
}

// withoutStrides drops ":strides" from the types of a key.
func withoutStrides(key string) string {
	var b strings.Builder
	skip := false
	for _, c := range key {
		switch {
		case c == ':':
			skip = true
		case c == ']':
			skip = false
		}
		if !skip {
			b.WriteRune(c)
		}
	}
	return b.String()
}
