package gomlx

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
)

// Drawn computations over meshes of 1 to 8 devices, in any order, with shardings of inputs and results
// drawn at random or none, give the pieces of what the Go backend computes.
func TestDrawnShardings(t *testing.T) {
	h := newHarness(t, "devices=8")
	theirs, err := gobackend.New("ops_sequential")
	h.check(err)
	defer theirs.Finalize()
	cut := 0
	for seed := range uint64(*graphs) {
		p := drawn{nodes: draw(seed+5000, theirs.Builder("drawn").Main(), 2+int(seed%8))}
		want, err := p.all().run(theirs)
		if err != nil { // it refuses some operations when they run
			continue
		}
		p.choose(seed)
		s := newSharded(&p, seed)
		got, err := s.run(h.b)
		if off := p.differs(got, err, want); off != "" {
			t.Errorf("seed %d over %v: %s\n%s", seed, s.mesh, off, p.text(want))
		}
		cut += s.cut
	}
	if t.Logf("%d axes cut inputs and results", cut); cut < *graphs/2 {
		t.Errorf("in %d computations %d axes cut something", *graphs, cut)
	}
}

// sharded is a drawn computation over a mesh.
type sharded struct {
	*drawn
	*rand.Rand
	mesh  compute.Mesh
	specs map[int]*compute.ShardingSpec // by node: as a parameter
	outs  []*compute.ShardingSpec
	cut   int
}

func newSharded(p *drawn, seed uint64) *sharded {
	s := &sharded{drawn: p, Rand: rand.New(rand.NewPCG(seed, 9)), specs: map[int]*compute.ShardingSpec{}}
	s.mesh = []compute.Mesh{
		{AxesSizes: []int{1}, AxesNames: []string{"a"}},
		{AxesSizes: []int{2}, AxesNames: []string{"a"}},
		{AxesSizes: []int{2, 2}, AxesNames: []string{"a", "b"}},
		{AxesSizes: []int{2, 3}, AxesNames: []string{"a", "b"}},
		{AxesSizes: []int{2, 2, 2}, AxesNames: []string{"a", "b", "c"}},
		{AxesSizes: []int{1, 4}, AxesNames: []string{"a", "b"}},
	}[s.IntN(6)]
	s.mesh.Name = "m"
	if s.IntN(2) == 0 {
		s.mesh.LogicalDeviceAssignment = s.Perm(size(s.mesh))
	}
	for k, n := range p.nodes {
		if n.build == nil {
			s.specs[k] = s.spec(n.shape)
		}
	}
	for _, k := range p.outs {
		s.outs = append(s.outs, s.spec(p.nodes[k].shape))
	}
	return s
}

// spec says how a value lies; nil for nothing.
func (s *sharded) spec(shape shapes.Shape) *compute.ShardingSpec {
	if s.IntN(5) == 0 {
		return nil
	}
	out := &compute.ShardingSpec{Mesh: "m", Axes: make([][]string, shape.Rank())}
	left := slices.Clone(shape.Dimensions)
	for _, i := range s.Perm(len(s.mesh.AxesNames)) {
		k := s.mesh.AxesSizes[i]
		if d := s.IntN(max(1, shape.Rank())); d < shape.Rank() && left[d]%k == 0 && s.IntN(4) > 0 {
			out.Axes[d], left[d] = append(out.Axes[d], s.mesh.AxesNames[i]), left[d]/k
			s.cut++
		}
	}
	return out
}

// run gives the results, put together of their pieces.
func (s *sharded) run(b compute.Backend) (flats []any, err error) {
	defer recovered(&err)
	n := b.Builder("drawn").(*builder)
	if err := n.DistributedAutoSharding(s.mesh); err != nil {
		return nil, err
	}
	f, need := n.Main(), s.needed()
	at := make([]compute.Value, len(s.nodes))
	var params []int
	for k, x := range s.nodes {
		switch {
		case !need[k]:
		case x.build == nil:
			at[k], err = f.Parameter(x.input(k), x.shape, s.specs[k])
			params = append(params, k)
		default:
			ins := make([]compute.Value, len(x.ins))
			for i, j := range x.ins {
				ins[i] = at[j]
			}
			at[k], err = x.build(f, ins)
		}
		if err != nil {
			return nil, err
		}
	}
	outs := make([]compute.Value, len(s.drawn.outs))
	for i, k := range s.drawn.outs {
		outs[i] = at[k]
	}
	if err := f.Return(outs, s.outs); err != nil {
		return nil, err
	}
	x, err := n.Compile()
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	var in []compute.Buffer
	for j := range size(s.mesh) {
		for _, k := range params {
			l, shape := s.tiles(n, s.nodes[k].shape, s.specs[k]), s.nodes[k].shape
			piece := dtypes.MakeAnySlice(shape.DType, l.piece.Size())
			l.copy(piece, s.nodes[k].flat, shape, j, false)
			u, err := b.BufferFromFlatData(compute.DeviceNum(j), piece, l.piece)
			if err != nil {
				return nil, err
			}
			in = append(in, u)
		}
	}
	bufs, err := x.Execute(in, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, k := range s.drawn.outs {
		shape := s.nodes[k].shape
		l, whole := s.tiles(n, shape, s.outs[i]), dtypes.MakeAnySlice(shape.DType, shape.Size())
		for j := range size(s.mesh) {
			u, piece := bufs[j*len(outs)+i], dtypes.MakeAnySlice(shape.DType, l.piece.Size())
			if got, _ := u.Shape(); !got.Equal(l.piece) {
				return nil, fmt.Errorf("result %d has shape %s on device %d, not %s", i, got, j, l.piece)
			}
			if err := u.ToFlatData(piece); err != nil {
				return nil, err
			}
			l.copy(piece, whole, shape, j, true)
		}
		flats = append(flats, whole)
	}
	return flats, nil
}

// tiles is where the pieces of a value are, by device.
func (s *sharded) tiles(n *builder, shape shapes.Shape, spec *compute.ShardingSpec) *tiling {
	l := n.tiles(shape, spec)
	if s.mesh.LogicalDeviceAssignment == nil {
		return l
	}
	out := &tiling{piece: l.piece, at: make([][]int, len(l.at))}
	for i, j := range s.mesh.LogicalDeviceAssignment {
		out.at[j] = l.at[i]
	}
	return out
}

func (l *tiling) copy(piece, whole any, shape shapes.Shape, j int, back bool) {
	copyBlock(dtypes.UnsafeByteSliceFromAny(piece), dtypes.UnsafeByteSliceFromAny(whole), l.piece.Dimensions, shape.Dimensions, l.at[j], int(shape.DType.Size()), back)
}
