package gomlx

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// With mesh=data:2/model:2 a program that knows of one device only runs on all devices of the
// mesh: a computation that has variables is partitioned, and its caller sees whole tensors. An
// axis says what is cut along it:
//
//	data   other inputs, in their first dimension
//	fsdp   those, too, and variables of two dimensions and more in the first that is left
//	model  such variables in their largest dimension, the last of these
//
// and new values of variables stay as the variables are cut.

// meshName is the mesh of the configuration; programs may have meshes of other names.
const meshName = "concert"

// parseMesh reads the value of mesh=.
func parseMesh(text string) (*compute.Mesh, error) {
	m := &compute.Mesh{Name: meshName}
	for _, axis := range strings.Split(text, "/") {
		name, n, _ := strings.Cut(axis, ":")
		size, err := strconv.Atoi(n)
		if err != nil || size < 1 || size > 1<<16 || !slices.Contains([]string{"data", "fsdp", "model"}, name) || slices.Contains(m.AxesNames, name) {
			return nil, errors.Errorf("concert: mesh=%s: %q is no axis: want data:N, fsdp:N or model:N, each once, with / between them", text, axis)
		}
		m.AxesNames, m.AxesSizes = append(m.AxesNames, name), append(m.AxesSizes, size)
	}
	return m, nil
}

// initialization is GoMLX's name of the computation that gives variables their first values. It
// has the state of random numbers for its only input, if any.
const initialization = "VariableInitialization"

// initializes reports whether the results of a computation are first values of variables.
func (n *builder) initializes() bool { return n.name == initialization }

// onMesh makes a computation of one device that has variables, or gives them their first
// values, one of the backend's mesh, and reports whether it did.
func (n *builder) onMesh() bool {
	if n.b.mesh == nil || size(*n.b.mesh) == 1 || n.fixed() || n.meshes != nil {
		return false
	}
	f, specs, outs := n.main, make([]*compute.ShardingSpec, len(n.main.params)), slices.Clone(n.main.outSpecs)
	if !slices.ContainsFunc(f.inputs, variable) && !n.initializes() {
		return false
	}
	cut := false
	for i, p := range f.params {
		specs[i] = cutInput(n.b.mesh, p.shape, variable(f.inputs[i]))
		cut = cut || !replicated(specs[i])
	}
	for i, o := range f.outs {
		if n.initializes() {
			outs[i] = cutInput(n.b.mesh, o.shape, true)
			cut = cut || !replicated(outs[i])
		}
	}
	if cut {
		n.meshes, f.specs, f.outSpecs = []compute.Mesh{*n.b.mesh}, specs, outs
	}
	return cut
}

// variable reports whether an input is a variable: GoMLX gives these their paths as names.
func variable(input string) bool { return strings.HasPrefix(input, "/") }

// cutInput says how an input is on the mesh. Weights are cut along model in their largest
// dimension, so that layers that widen are cut in what they make and those that narrow in what
// they take, with nothing to be exchanged between the two.
func cutInput(m *compute.Mesh, shape shapes.Shape, variable bool) *compute.ShardingSpec {
	s := &compute.ShardingSpec{Mesh: m.Name, Axes: make([][]string, shape.Rank())}
	for _, name := range []string{"model", "data", "fsdp"} {
		i := slices.Index(m.AxesNames, name)
		if i < 0 {
			continue
		}
		best := -1
		for d, n := range shape.Dimensions {
			k := m.AxesSizes[i]
			for _, a := range s.Axes[d] {
				k *= m.AxesSizes[slices.Index(m.AxesNames, a)]
			}
			may := d == 0 && name != "model" // of a batch
			if variable {
				may = shape.Rank() > 1 && name != "data" && s.Axes[d] == nil
			}
			if may && n > 0 && n%k == 0 && (best < 0 || name == "model" && n >= shape.Dimensions[best]) {
				best = d
			}
		}
		if best >= 0 {
			s.Axes[best] = append(s.Axes[best], name)
		}
	}
	return s
}

// spread is a computation of all devices of the backend's mesh, whose inputs and results are whole.
type spread struct {
	*executable
	ins, outs []*tiling
	results   []shapes.Shape // whole
}

// tiling is how a tensor is on the devices of a mesh.
type tiling struct {
	piece shapes.Shape
	at    [][]int // by device: where its piece begins
}

// tiles is where the pieces of a value are.
func (n *builder) tiles(shape shapes.Shape, s *compute.ShardingSpec) *tiling {
	m, l := n.meshes[0], &tiling{piece: n.local(shape, s)}
	for j := range size(m) {
		place := map[string]int{}
		for i, rest := len(m.AxesSizes)-1, j; i >= 0; i-- {
			place[m.AxesNames[i]], rest = rest%m.AxesSizes[i], rest/m.AxesSizes[i]
		}
		at := make([]int, shape.Rank())
		for d := range at {
			for _, a := range axesOf(s, d) {
				at[d] = at[d]*m.AxesSizes[slices.Index(m.AxesNames, a)] + place[a]
			}
			at[d] *= l.piece.Dimensions[d]
		}
		l.at = append(l.at, at)
	}
	return l
}

func (l *tiling) equal(o *tiling) bool {
	return l.piece.Equal(o.piece) && slices.EqualFunc(l.at, o.at, slices.Equal[[]int])
}

// rows is how many elements a row has of a tensor that is cut in its first dimension only, else 0.
func (l *tiling) rows(whole shapes.Shape) int {
	if whole.Rank() == 0 || l.piece.Equal(whole) || !slices.Equal(l.piece.Dimensions[1:], whole.Dimensions[1:]) {
		return 0
	}
	return whole.Size() / whole.Dimensions[0]
}

// Inputs are those of the computation as it was built.
func (s *spread) Inputs() ([]string, []shapes.Shape) {
	return slices.Clone(s.names), slices.Clone(s.whole)
}

// Outputs are those of the computation as it was built.
func (s *spread) Outputs() []shapes.Shape { return slices.Clone(s.results) }

// Execute cuts the inputs, where they are not cut as they should be, and runs all devices.
func (s *spread) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	np, n := len(s.ins), len(s.devices)
	switch {
	case len(inputs) != np:
		return nil, errors.Errorf("concert: computation %q takes %d inputs, not %d", s.name, np, len(inputs))
	case donate != nil && len(donate) != np:
		return nil, errors.Errorf("concert: %d inputs, and %d say whether they are donated", np, len(donate))
	}
	all, gives := make([]compute.Buffer, n*np), make([]bool, n*np)
	for i, in := range inputs {
		u, ok := in.(*Buffer)
		if !ok || u == nil || u.b != s.b {
			return nil, errors.Errorf("concert: input %d (%q) of computation %q is a buffer of another backend", i, s.names[i], s.name)
		}
		if !u.shape.Equal(s.whole[i]) {
			return nil, errors.Errorf("concert: input %d (%q) of computation %q is %s, not %s", i, s.names[i], s.name, u.shape, s.whole[i])
		}
		pieces, made, err := u.cut(s.ins[i], s.devices)
		if err != nil {
			return nil, errors.WithMessagef(err, "input %d (%q) of computation %q", i, s.names[i], s.name)
		}
		for j, p := range pieces {
			all[j*np+i], gives[j*np+i] = p, made || donate != nil && donate[i]
		}
	}
	outs, err := s.executable.Execute(all, gives, device)
	if err != nil {
		return nil, err
	}
	for i := range inputs {
		if donate != nil && donate[i] {
			inputs[i].Finalize()
		}
	}
	whole := make([]compute.Buffer, len(s.outs))
	for i, l := range s.outs {
		u := &Buffer{b: s.b, shape: s.results[i], dev: device, tiles: l}
		for j := range n {
			u.pieces = append(u.pieces, outs[j*len(whole)+i].(*Buffer))
		}
		whole[i] = u
	}
	return whole, nil
}

// cut gives the pieces of a tensor, and whether they were made for it.
func (u *Buffer) cut(l *tiling, devices []compute.DeviceNum) (pieces []*Buffer, made bool, err error) {
	u.mu.Lock()
	if u.pieces != nil && u.tiles.equal(l) {
		pieces = u.pieces
	}
	u.mu.Unlock()
	if pieces != nil {
		return pieces, false, nil
	}
	flat, err := u.fetch()
	if err != nil {
		return nil, false, err
	}
	for j, d := range devices {
		p := &Buffer{b: u.b, shape: l.piece, dev: d, flat: flat}
		if rows := l.rows(u.shape); rows > 0 { // one behind the other
			first := l.at[j][0] * rows
			p.flat = reflect.ValueOf(flat).Slice(first, first+l.piece.Size()).Interface()
		} else if !l.piece.Equal(u.shape) {
			p.flat = dtypes.MakeAnySlice(l.piece.DType, l.piece.Size())
			copyBlock(dtypes.UnsafeByteSliceFromAny(p.flat), dtypes.UnsafeByteSliceFromAny(flat), l.piece.Dimensions, u.shape.Dimensions, l.at[j], int(l.piece.DType.Size()), false)
		}
		pieces = append(pieces, p)
	}
	return pieces, true, nil
}

// join brings all pieces to Go's memory.
func (u *Buffer) join() error {
	u.mu.Lock()
	none := u.pieces == nil || u.flat != nil
	u.mu.Unlock()
	if none {
		return nil
	}
	flat := dtypes.MakeAnySlice(u.shape.DType, u.shape.Size())
	if err := u.assemble(dtypes.UnsafeByteSliceFromAny(flat)); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pieces != nil {
		u.flat = flat
	}
	return nil
}

// assemble copies the pieces to where the whole is to be.
func (u *Buffer) assemble(whole []byte) error {
	u.mu.Lock()
	pieces, l := u.pieces, u.tiles
	u.mu.Unlock()
	if pieces == nil {
		return errGone
	}
	bytes := int(l.piece.DType.Size())
	size := l.piece.Size() * bytes
	var part []byte
	for j, p := range pieces {
		if l.piece.Equal(u.shape) {
			return p.read(whole)
		}
		if rows := l.rows(u.shape); rows > 0 {
			first := l.at[j][0] * rows * bytes
			if err := p.read(whole[first : first+size]); err != nil {
				return err
			}
			continue
		}
		if part == nil {
			part = make([]byte, size)
		}
		if err := p.read(part); err != nil {
			return err
		}
		copyBlock(part, whole, l.piece.Dimensions, u.shape.Dimensions, l.at[j], bytes, true)
	}
	return nil
}

// copyBlock copies a block between a piece and the whole that it begins at, of elements of
// some bytes: into the whole if back is set.
func copyBlock(piece, whole []byte, dims, all, at []int, bytes int, back bool) {
	if len(dims) == 0 || len(piece) == 0 {
		if back {
			copy(whole, piece)
		} else {
			copy(piece, whole[:len(piece)])
		}
		return
	}
	in, out := bytes, bytes
	for d := 1; d < len(dims); d++ {
		in, out = in*dims[d], out*all[d]
	}
	if in == out {
		copyBlock(piece, whole[at[0]*out:], nil, nil, nil, bytes, back)
		return
	}
	for i := range dims[0] {
		copyBlock(piece[i*in:(i+1)*in], whole[(at[0]+i)*out:], dims[1:], all[1:], at[1:], bytes, back)
	}
}
