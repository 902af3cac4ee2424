package progtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/program"
)

// Schedule is one way in which streams may progress.
type Schedule struct {
	// Prefer lists the streams by falling priority; nil runs the list in order.
	Prefer []int
	// Eager reads operands as early as possible.
	Eager bool
}

// Schedules lists schedules that together run every unordered pair of
// instructions in both orders.
func Schedules(p *program.Program) []Schedule {
	out := []Schedule{{}, {Eager: true}}
	for s := range p.Streams {
		up, down := []int{s}, []int{s}
		for t := range p.Streams {
			if t != s {
				up = append(up, t)
			}
			if u := len(p.Streams) - 1 - t; u != s {
				down = append(down, u)
			}
		}
		out = append(out, Schedule{Prefer: up}, Schedule{Prefer: up, Eager: true})
		if !slices.Equal(up, down) {
			out = append(out, Schedule{Prefer: down})
		}
	}
	return out
}

// Outcome is what can be seen of a run.
type Outcome struct {
	Outputs [][][][]byte // by rank, output and tensor
	Digest  uint64       // of all outputs and of the inputs that the caller keeps, on all ranks
	Orders  [][]int      // by group: its collectives in the order in which they ran
	Left    int          // an instruction that was still to run when the caller may start over, -1 if none
}

// ErrUnrecorded says that a program waits for an event that nothing recorded,
// which the runtime refuses.
var ErrUnrecorded = errors.New("a wait for an event that nothing has recorded")

// rank is the state of one rank.
type rank struct {
	arena   []byte
	done    []bool                     // by instruction
	arrived []bool                     // by input
	head    []int                      // by stream: number of instructions done, of its list
	began   map[int][][]hostops.Tensor // by instruction: copies of the operands of every member
}

// machine is one run.
type machine struct {
	p       *program.Program
	in      Inputs
	eager   bool
	ranks   []rank
	streams [][]int // by stream: its instructions
	place   []int   // by instruction: its index in its stream's list
	bind    []int   // by wait: the record it refers to, or -1-k for input k
	outBind []int   // by output: the same for an async one
	orders  [][]int
	sizes   map[string]program.Tensor // that tensors hold, by symbol; look-up only
}

// Run executes p under a schedule. The arena holds garbage, derived from poison,
// where no input puts anything. An error means that the program cannot run.
func Run(p *program.Program, in Inputs, s Schedule, poison uint64) (*Outcome, error) {
	m := &machine{p: p, in: in, eager: s.Eager, streams: make([][]int, len(p.Streams)), place: make([]int, len(p.Instrs)), bind: make([]int, len(p.Instrs)),
		outBind: make([]int, len(p.Outputs)), orders: make([][]int, len(p.Groups)), sizes: p.SizesRead()}
	if err := m.link(); err != nil {
		return nil, err
	}
	if err := m.load(poison); err != nil {
		return nil, err
	}
	flying := make([]bool, len(p.Streams))
	for i := range p.Outputs {
		if b := m.outBind[i]; p.Outputs[i].Async && b >= 0 {
			flying[p.Instrs[b].Stream] = true
		}
	}
	if s.Prefer == nil {
		for r := range m.ranks {
			for k := range p.Inputs {
				if err := m.arrive(r, k); err != nil {
					return nil, err
				}
			}
		}
		for i := range p.Instrs {
			if err := m.onAll(i); err != nil {
				return nil, err
			}
		}
	}
	for n, t := range s.Prefer {
		if n > 0 && flying[t] {
			continue // not before the plain outputs have been read
		}
		for _, i := range m.streams[t] {
			if err := m.onAll(i); err != nil {
				return nil, err
			}
		}
	}
	return m.finish()
}

// finish reads the outputs as the runtime does.
func (m *machine) finish() (*Outcome, error) {
	p := m.p
	h := fnv.New64a()
	out := &Outcome{Outputs: make([][][][]byte, p.World), Left: -1}
	for r := range out.Outputs {
		out.Outputs[r] = make([][][]byte, len(p.Outputs))
	}
	for _, async := range []bool{false, true} {
		for r := range m.ranks {
			for i := range p.Outputs {
				q := &p.Outputs[i]
				if q.Async != async {
					continue
				}
				if async {
					if err := m.fired(r, m.outBind[i]); err != nil {
						return nil, err
					}
				}
				for k := range q.Tensors {
					data, err := m.read(r, &q.Tensors[k])
					if err != nil {
						return nil, err
					}
					out.Outputs[r][i] = append(out.Outputs[r][i], data)
					h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(data))))
					h.Write(data)
				}
			}
		}
	}
	for r := range m.ranks {
		for i := range p.Inputs {
			if q := &p.Inputs[i]; !q.Async && q.Role != "saved" && q.Role != "tangent" {
				data, err := m.read(r, &q.Tensors[0])
				if err != nil {
					return nil, err
				}
				h.Write(data)
			}
		}
	}
	out.Digest, out.Orders = h.Sum64(), m.orders
	for r := range m.ranks {
		for i, done := range m.ranks[r].done {
			if k := p.Instrs[i].Kind; !done && k != program.Record && k != program.Wait && out.Left < 0 {
				out.Left = i
			}
		}
		for k, came := range m.ranks[r].arrived {
			if !came && out.Left < 0 {
				out.Left = len(p.Instrs) + k
			}
		}
	}
	return out, nil
}

// link finds what each wait waits for.
func (m *machine) link() error {
	p := m.p
	latest := map[int]int{}
	for k := range p.Inputs {
		if p.Inputs[k].Async {
			latest[p.Inputs[k].Event] = -1 - k
		}
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		m.place[i] = len(m.streams[in.Stream])
		m.streams[in.Stream] = append(m.streams[in.Stream], i)
		switch in.Kind {
		case program.Record:
			latest[in.Event] = i
		case program.Wait:
			b, ok := latest[in.Event]
			if !ok {
				return fmt.Errorf("instruction %d: %w", i, ErrUnrecorded)
			}
			m.bind[i] = b
		}
	}
	for i := range p.Outputs {
		if q := &p.Outputs[i]; q.Async {
			b, ok := latest[q.Event]
			if !ok {
				return fmt.Errorf("output %s: %w", q.Name, ErrUnrecorded)
			}
			m.outBind[i] = b
		}
	}
	return nil
}

// load makes the arenas and fills in the plain inputs.
func (m *machine) load(poison uint64) error {
	p := m.p
	m.ranks = make([]rank, p.World)
	for r := range m.ranks {
		k := &m.ranks[r]
		*k = rank{arena: make([]byte, p.Arena), done: make([]bool, len(p.Instrs)), arrived: make([]bool, len(p.Inputs)),
			head: make([]int, len(p.Streams)), began: map[int][][]hostops.Tensor{}}
		fill(k.arena, poison+uint64(r))
		for i := range p.Inputs {
			if p.Inputs[i].Async {
				continue
			}
			k.arrived[i] = true
			if err := m.write(r, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// write puts input i into rank r's arena.
func (m *machine) write(r, i int) error {
	for k := range m.p.Inputs[i].Tensors {
		dst, err := m.view(r, &m.p.Inputs[i].Tensors[k])
		if err != nil {
			return err
		}
		src := hostops.Tensor{DType: dst.DType, Shape: dst.Shape, Strides: hostops.RowMajor(dst.Shape), Data: m.in[r][i][k]}
		if err := hostops.Copy(dst, src); err != nil {
			return err
		}
	}
	return nil
}

// arrive completes input i, if it is async and has not arrived yet.
func (m *machine) arrive(r, i int) error {
	if m.ranks[r].arrived[i] {
		return nil
	}
	m.ranks[r].arrived[i] = true
	return m.write(r, i)
}

// fired completes what an event stands for.
func (m *machine) fired(r, bind int) error {
	if bind < 0 {
		return m.arrive(r, -1-bind)
	}
	return m.complete(r, bind)
}

// onAll completes instruction i on all ranks.
func (m *machine) onAll(i int) error {
	for r := range m.ranks {
		if err := m.complete(r, i); err != nil {
			return err
		}
	}
	return nil
}

// reach completes what rank r's stream has before instruction i.
func (m *machine) reach(r, i int) error {
	list := m.streams[m.p.Instrs[i].Stream]
	for n := m.ranks[r].head[m.p.Instrs[i].Stream]; n < m.place[i]; n = m.ranks[r].head[m.p.Instrs[i].Stream] {
		if err := m.complete(r, list[n]); err != nil {
			return err
		}
	}
	return nil
}

// complete runs instruction i on rank r, after all that it has to wait for and
// nothing else.
func (m *machine) complete(r, i int) error {
	if m.ranks[r].done[i] {
		return nil
	}
	if err := m.reach(r, i); err != nil {
		return err
	}
	in := &m.p.Instrs[i]
	switch {
	case in.Kind == program.Wait:
		if err := m.fired(r, m.bind[i]); err != nil {
			return err
		}
	case in.Communicates():
		members := m.members(r, in.Group)
		for _, q := range members {
			if err := m.reach(q, i); err != nil {
				return err
			}
		}
		if m.ranks[r].done[i] {
			return nil // reached from a peer
		}
		if err := m.collective(members, i); err != nil {
			return err
		}
		if slices.Contains(members, 0) {
			m.orders[in.Group] = append(m.orders[in.Group], i)
		}
		for _, q := range members {
			m.passed(q, i)
		}
		return m.begin()
	case in.Kind != program.Record:
		if err := m.launch(r, i); err != nil {
			return err
		}
	}
	m.passed(r, i)
	return m.begin()
}

func (m *machine) passed(r, i int) {
	k := &m.ranks[r]
	if !k.done[i] {
		m.sized(r, i)
		k.done[i] = true
		k.head[m.p.Instrs[i].Stream]++
	}
}

// sized lets what instruction i has written depend on the sizes that it names, as they are now.
// The symbols themselves stand at their hints.
func (m *machine) sized(r, i int) {
	if m.sizes == nil {
		return
	}
	in := &m.p.Instrs[i]
	mark := byte(0)
	for _, s := range in.SymbolsNamed() {
		if t, ok := m.sizes[s]; ok {
			for k, b := range m.ranks[r].arena[m.p.Buffers[t.Buffer].Offset+t.Offset:][:8] {
				mark += b * byte(2*k+1)
			}
		}
	}
	for k := range in.Outs {
		if v, err := m.view(r, &in.Outs[k]); err == nil && len(v.Data) > 0 {
			v.Data[0] += mark
		}
	}
}

// begin, in an eager schedule, reads the operands of everything that can start.
func (m *machine) begin() error {
	if !m.eager {
		return nil
	}
	for again := true; again; {
		again = false
		for r := range m.ranks {
			for s, list := range m.streams {
				k := &m.ranks[r]
				if k.head[s] == len(list) {
					continue
				}
				i := list[k.head[s]]
				in := &m.p.Instrs[i]
				switch {
				case in.Kind == program.Record, in.Kind == program.Wait && m.hasFired(r, m.bind[i]):
					m.passed(r, i)
					again = true
				case in.Kind == program.Wait || k.began[i] != nil:
				default:
					if err := m.snapshot(r, i); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (m *machine) hasFired(r, bind int) bool {
	if bind < 0 {
		return m.ranks[r].arrived[-1-bind]
	}
	return m.ranks[r].done[bind]
}

// snapshot copies the operands of instruction i, of all members of a collective
// if all of them are there.
func (m *machine) snapshot(r, i int) error {
	in := &m.p.Instrs[i]
	from := []int{r}
	if in.Communicates() {
		from = m.members(r, in.Group)
		for _, q := range from {
			if k := &m.ranks[q]; k.head[in.Stream] != m.place[i] {
				return nil
			}
		}
	}
	var all [][]hostops.Tensor
	for _, q := range from {
		ts := make([]hostops.Tensor, len(in.Ins))
		for k := range in.Ins {
			v, err := m.view(q, &in.Ins[k])
			if err != nil {
				return err
			}
			v.Data = slices.Clone(v.Data)
			ts[k] = v
		}
		all = append(all, ts)
	}
	for _, q := range from {
		m.ranks[q].began[i] = all
	}
	return nil
}

// operands returns the operands of i as they were when it began, and now if it
// has not.
func (m *machine) operands(r, i int) ([][]hostops.Tensor, error) {
	k := &m.ranks[r]
	if k.began[i] == nil {
		if err := m.snapshot(r, i); err != nil {
			return nil, err
		}
	}
	ops := k.began[i]
	delete(k.began, i)
	if ops == nil {
		return nil, fmt.Errorf("instruction %d: not all members have come to it", i)
	}
	return ops, nil
}

// members are the ranks of r's subgroup.
func (m *machine) members(r, group int) []int {
	for _, sub := range m.p.Groups[group].Ranks {
		if slices.Contains(sub, r) {
			return sub
		}
	}
	return nil
}
