package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/program"
)

// Module is what the runtime has to know of a compiled program before it runs:
// memory, streams, events, groups and signature. ModuleOf makes it from a
// program; emitted code contains it as a literal.
type Module struct {
	Name    string
	Digest  string // identifies the program; compared at rendezvous
	Text    string // the program's text form, or empty; exchanged only when digests differ
	World   int    // number of ranks, 0 for any
	Arena   int64  // bytes
	Streams []string
	Events  int
	Groups  []Group
	Symbols []Symbol
	Inputs  []Param
	Outputs []Param
	Needs   []Need
	Calls   []string // targets of calls, each once: what Config.Funcs has to have

	// Joint, of a stage, is what stands for all stages when ranks compare what they bring: each
	// has a module of its own, and the same Name, Joint, Groups and Arena. ModulesOf makes them.
	Joint string
	Ranks []int // of a stage: who may load it

	// Step, of a module that emitted code describes, is that code. It is used where
	// there is no Text: to say what ranks disagree on, and what they do not come to.
	Step func(*Exec)

	// Source is the translation unit of the kernels: CUDA C++, compiled with Flags.
	// Empty where the module has no kernels, or is to run on the host only.
	Source  string
	Flags   []string
	Kernels []Code
}

// Symbol is a run-time size in Min..Max.
type Symbol struct {
	Name           string
	Hint, Min, Max int64
	Read           bool // a launch of the module reads it from a tensor
}

// Need is an expression over the symbols that must not be negative, and the IR node
// that needs it.
type Need struct{ Size, Node string }

// Param is an input or output of a module. A plain one is one tensor. An async
// input is the results of a collective that the caller started, and Event stands
// for its end; an async output is the results of a collective that may be in
// flight when the program ends, and Event is recorded after it.
type Param struct {
	Name    string
	Async   bool
	Event   int // of an async one
	Tensors []Tensor
	// Room is how many bytes of the module's arena a plain one has for itself, so that it may
	// are in a buffer of the world instead (Rank.Add); 0 if it shares bytes with others.
	Room int64
	// Dims gives, for each tensor, the expressions of its dimensions over the
	// module's symbols; nil, or nil for one tensor, where the shape is constant.
	// Tensors then have each dimension at its bound, though not all may reach theirs at
	// once.
	Dims [][]string
	// Strides gives the expressions of strides likewise; nil where they are numbers.
	Strides [][]string
}

// ModuleOf describes a program. The error is Program.Validate's, names a tensor that its
// symbols' bounds make too large, or says that the program is one of stages (ModulesOf).
func ModuleOf(p *program.Program) (*Module, error) {
	if p.Ranks != nil {
		return nil, fmt.Errorf("program %s: is a stage, for ranks %v: load it with the others (ModulesOf)", p.Name, p.Ranks)
	}
	return moduleOf(p)
}

func moduleOf(p *program.Program) (*Module, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &Module{Name: p.Name, Digest: p.Digest(), Text: p.String(), World: p.World, Arena: p.Arena, Events: p.Events}
	for _, s := range p.Streams {
		m.Streams = append(m.Streams, s.Name)
	}
	for _, g := range p.Groups {
		m.Groups = append(m.Groups, Group{Name: g.Name, Ranks: g.Ranks})
	}
	read := p.SizesRead()
	for _, s := range p.Symbols {
		_, ok := read[s.Name]
		m.Symbols = append(m.Symbols, Symbol{Name: s.Name, Hint: s.Hint, Min: s.Min, Max: s.Max, Read: ok})
	}
	for _, n := range p.Needs {
		m.Needs = append(m.Needs, Need{n.Size.String(), n.Node})
	}
	params := func(in []program.Param) ([]Param, error) {
		var out []Param
		for _, q := range in {
			r := Param{Name: q.Name, Async: q.Async, Event: q.Event}
			r.Room = p.Room(&q)
			for i := range q.Tensors {
				t := &q.Tensors[i]
				v, err := atBounds(p, t)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", q.Name, err)
				}
				r.Tensors = append(r.Tensors, v)
				r.Dims = append(r.Dims, dimTexts(t.Shape))
				r.Strides = append(r.Strides, dimTexts(t.Strides))
			}
			for _, texts := range []*[][]string{&r.Dims, &r.Strides} {
				if !slices.ContainsFunc(*texts, func(d []string) bool { return d != nil }) {
					*texts = nil
				}
			}
			out = append(out, r)
		}
		return out, nil
	}
	var err error
	if m.Inputs, err = params(p.Inputs); err != nil {
		return nil, fmt.Errorf("program %s: input %w", p.Name, err)
	}
	if m.Outputs, err = params(p.Outputs); err != nil {
		return nil, fmt.Errorf("program %s: output %w", p.Name, err)
	}
	m.Source, m.Flags, m.Kernels, m.Calls = p.Source(), p.Unit.Flags, codesOf(p), p.Calls()
	return m, nil
}

// ModulesOf describes the programs of stages, in order: a rank loads that of its own stage, on a
// device that takes stages (StageRunner). Errors are ModuleOf's and program.CheckStages'.
func ModulesOf(name string, s program.Stages) ([]*Module, error) {
	if err := program.CheckStages(s); err != nil {
		return nil, err
	}
	joint := s.String()
	for _, p := range s {
		joint += fmt.Sprintf("source %x\n", sha256.Sum256([]byte(p.Source())))
	}
	var out []*Module
	for _, p := range s {
		m, err := moduleOf(p)
		if err != nil {
			return nil, err
		}
		m.Name, m.Ranks, m.Joint = name, p.Ranks, joint
		out = append(out, m)
	}
	return out, nil
}

// dimTexts returns the expressions of a shape or of strides, nil if all are constant.
func dimTexts(shape []dim.Dim) []string {
	constant := true
	texts := make([]string, len(shape))
	for i, d := range shape {
		_, c := d.Const()
		constant = constant && c
		texts[i] = d.String()
	}
	if constant {
		return nil
	}
	return texts
}

// resolveTensor places a program's tensor in the arena, with symbols evaluated.
func resolveTensor(p *program.Program, t *program.Tensor, sym func(string) (int64, bool)) (Tensor, error) {
	out := Tensor{Off: p.Buffers[t.Buffer].Offset + t.Offset, DType: t.DType}
	var err error
	if out.Shape, err = evaluated(t.Shape, sym); err == nil && t.Strides != nil {
		out.Strides, err = evaluated(t.Strides, sym)
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("%%%s: %w", p.Buffers[t.Buffer].Name, err)
	}
	return out, nil
}

// check reports the first thing wrong with a module.
func (m *Module) check(world int) error {
	switch {
	case m.World != 0 && m.World != world:
		return fmt.Errorf("module %s: is for %d ranks, the world has %d", m.Name, m.World, world)
	case len(m.Streams) == 0:
		return fmt.Errorf("module %s: has no stream", m.Name)
	case m.Arena < 0 || m.Events < 0 || m.Events > 1<<28:
		return fmt.Errorf("module %s: %d arena bytes, %d events", m.Name, m.Arena, m.Events)
	}
	for _, g := range m.Groups {
		if err := g.check(world, m.Joint == ""); err != nil {
			return fmt.Errorf("module %s: %w", m.Name, err)
		}
	}
	if err := checkCodes(m.Kernels); err != nil {
		return fmt.Errorf("module %s: %w", m.Name, err)
	}
	for _, q := range slices.Concat(m.Inputs, m.Outputs) {
		if q.Async && (q.Event < 0 || q.Event >= m.Events) {
			return fmt.Errorf("module %s: parameter %s: event %d of %d", m.Name, q.Name, q.Event, m.Events)
		}
		if !q.Async && len(q.Tensors) != 1 || q.Dims != nil && len(q.Dims) != len(q.Tensors) || q.Strides != nil && len(q.Strides) != len(q.Tensors) {
			return fmt.Errorf("module %s: parameter %s has %d tensors", m.Name, q.Name, len(q.Tensors))
		}
		for i, t := range q.Tensors {
			lo, hi, err := m.span(&q, i)
			if err == nil && (lo < 0 || hi > m.Arena) {
				err = fmt.Errorf("%v is outside of the arena of %d bytes", t, m.Arena)
			}
			if err != nil {
				return fmt.Errorf("module %s: parameter %s: %w", m.Name, q.Name, err)
			}
		}
		if q.Room < 0 || q.Room > 0 && (q.Async || q.Tensors[0].Off < 0 || q.Room > m.Arena-q.Tensors[0].Off) {
			return fmt.Errorf("module %s: parameter %s has %d bytes for itself, the arena %d", m.Name, q.Name, q.Room, m.Arena)
		}
	}
	return nil
}

// header is one text for everything that ranks must agree on besides the program
// itself. It stands in for the program's text where there is none.
func (m *Module) header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "module %s: world %d, arena %d, events %d, streams %q\n", m.Name, m.World, m.Arena, m.Events, m.Streams)
	for _, g := range m.Groups {
		fmt.Fprintf(&b, "group %s = %v\n", g.Name, g.Ranks)
	}
	fmt.Fprintf(&b, "symbols %v\n", m.Symbols)
	for _, n := range m.Needs {
		fmt.Fprintf(&b, "need %s from %s\n", n.Size, n.Node)
	}
	if len(m.Kernels) > 0 {
		// One rank with and one without source, or with an edited one, do not fit.
		fmt.Fprintf(&b, "kernels %d, flags %q, source %x\n", len(m.Kernels), m.Flags, sha256.Sum256([]byte(m.Source)))
	}
	for _, q := range m.Inputs {
		fmt.Fprintf(&b, "input %s async %v %d: %v %q %q\n", q.Name, q.Async, q.Event, q.Tensors, q.Dims, q.Strides)
	}
	for _, q := range m.Outputs {
		fmt.Fprintf(&b, "output %s async %v %d: %v %q %q\n", q.Name, q.Async, q.Event, q.Tensors, q.Dims, q.Strides)
	}
	return b.String()
}

// agreement is the digest and text that stand for all of a rank's modules.
func agreement(mods []*Module, world int) (digest, text string) {
	h := sha256.New()
	var b strings.Builder
	for _, m := range mods {
		if m.Joint != "" {
			b.WriteString(m.Joint)
			fmt.Fprintf(h, "stages %d %s", len(m.Joint), m.Joint)
			continue
		}
		head := m.header()
		if m.Text != "" {
			b.WriteString(m.Text) // so that line numbers are the program's
		} else {
			b.WriteString(head)
			b.WriteString(m.listing(world).text.String())
		}
		fmt.Fprintf(h, "%d %s%d %s", len(head), head, len(m.Digest), m.Digest)
		if m.Digest == "" {
			h.Write([]byte(m.Text))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), b.String()
}
