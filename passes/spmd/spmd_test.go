package spmd

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// nothing is what lies behind the end of a tensor: no number.
const nothing = 0xff

// cutTensor is a rank's piece of a tensor, with bytes behind its end.
func cutTensor(at placed, t interp.Tensor, rank int, behind byte) interp.Tensor {
	out := interp.Tensor{DType: t.DType, Shape: at.g.local(at.layout)}
	esize := t.DType.Size()
	n := 1
	for _, k := range out.Shape {
		n *= int(k)
	}
	out.Data = make([]byte, n*esize)
	for i := range n {
		rest, src, stride, inside := i, 0, 1, true
		for d := len(out.Shape) - 1; d >= 0; d-- {
			k := int(out.Shape[d])
			pos := at.g.place(rank, at.dims[d])*k + rest%k
			rest /= k
			inside = inside && pos < int(t.Shape[d])
			src += pos * stride
			stride *= int(t.Shape[d])
		}
		if inside {
			copy(out.Data[i*esize:(i+1)*esize], t.Data[src*esize:])
		} else {
			for b := range esize {
				out.Data[i*esize+b] = behind
			}
		}
	}
	return out
}

// pieces compares a rank's piece with that of a global tensor, leaving out what lies behind
// its end.
func pieces(at placed, want, got interp.Tensor, rank int, bound float64) error {
	piece := cutTensor(at, want, rank, nothing)
	if len(piece.Data) != len(got.Data) {
		return fmt.Errorf("piece %v, want %v", got.Shape, piece.Shape)
	}
	esize := want.DType.Size()
	ok := true
	for i := range len(got.Data) / esize {
		rest, inside := i, true
		for d := len(piece.Shape) - 1; d >= 0; d-- {
			k := int(piece.Shape[d])
			inside = inside && at.g.place(rank, at.dims[d])*k+rest%k < int(want.Shape[d])
			rest /= k
		}
		if !inside {
			copy(got.Data[i*esize:], piece.Data[i*esize:(i+1)*esize])
		}
	}
	d, err := interp.Compare(got, piece)
	if err != nil {
		return err
	}
	ok = d.Exact || want.DType.IsFloat() && (d.Rel <= bound || d.MaxAbs < 1e-6)
	if !ok {
		return fmt.Errorf("rank %d: %v", rank, d)
	}
	return nil
}

// trial is a function that was partitioned, and what it computes whole.
type trial struct {
	*partitioner
	in   [][]interp.Tensor // by rank, whole
	want [][]interp.Tensor
}

// try partitions a function, and where rows are near takes them of neighbours wherever it can.
func try(m *ir.Module, seed uint64, near bool) (*trial, error) {
	f := m.Funcs()[0]
	in, err := interp.RandomInputs(f, seed, interp.RandomOptions{})
	if err != nil {
		return nil, err
	}
	for r := range in {
		in[r] = in[0]
	}
	want, err := interp.Run(context.Background(), f, in, interp.Options{})
	if err != nil {
		return nil, err
	}
	splitAddmms(f)
	var p *partitioner
	if near {
		p, err = newPartitioner(f, strategy{propagation: shardy, near: true})
	} else {
		p, err = cheapest(f, true, false)
	}
	if err != nil {
		return nil, err
	}
	p.to = m.AddFunc(f.Name)
	if err := p.run(); err != nil {
		return nil, err
	}
	m.RemoveFunc(f)
	return &trial{p, in, want}, nil
}

// runs is what a function of pieces computes.
func (p *trial) runs(ranks *ir.Func, behind byte) ([][]interp.Tensor, error) {
	local := make([][]interp.Tensor, len(p.in))
	for r := range local {
		for i, n := range p.f.Inputs() {
			at := placed{p.g, p.vals[n.Result(0).ID()].forms[0].layout}
			if far := p.foreign[int(n.Result(0).ID())]; far != nil {
				at = *far
			}
			local[r] = append(local[r], cutTensor(at, p.in[r][i], r, behind))
		}
	}
	return interp.Run(context.Background(), ranks, local, interp.Options{})
}

// compare compares what ranks have with the pieces that they should.
func (p *trial) compare(got [][]interp.Tensor, bound float64) error {
	for r := range got {
		for i, at := range p.outs {
			if err := pieces(at, p.want[r][i], got[r][i], r, bound); err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
		}
	}
	return nil
}

// agrees runs the partitioned function and compares its results with the pieces of those wanted.
func (p *trial) agrees(bound float64) error {
	got, err := p.runs(p.to, nothing)
	if err != nil {
		return err
	}
	return p.compare(got, bound)
}

// agree partitions a function and compares what both compute.
func agree(m *ir.Module, seed uint64, near bool, bound float64) (string, error) {
	p, err := try(m, seed, near)
	if err != nil {
		return "", err
	}
	text := m.String()
	if err := m.Verify(); err != nil {
		return text, err
	}
	return text, p.agrees(bound)
}

// Every golden case computes the pieces of what its global function computes.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/golden/spmd/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range a.Files {
				if f.Name != "input.ir" {
					continue
				}
				m, err := ir.Parse(path, string(f.Data))
				if err != nil {
					t.Fatal(err)
				}
				if text, err := agree(m, 1, false, 1e-6); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
			}
		})
	}
}

// What is stated and cannot be kept is refused, not dropped.
func TestRefused(t *testing.T) {
	const mesh = "<mesh<['x'=2, 'y'=2]>, [{'x'}], unreduced={'y'}>"
	for _, c := range []struct{ text, want string }{
		{`func @f(%x: f32[8] !{sharding=["` + mesh + `"]}) -> (f32[8]) {
  return %x
}`, "input %x is stated to be parts of a reduction"},
		{`func @f(%x: f32[8] !{sharding=["<mesh<['x'=2, 'y'=2]>, [{'x'}]>"]}) -> (f32[8]) {
  return %x !{sharding=["` + mesh + `"]}
}`, "result 0 is stated to be parts of a reduction"},
		{`func @f(%x: f32[8] !{sharding=["<mesh<['x'=2, 'y'=2]>, [{'x'}]>"]}) -> (f32[8]) {
  %y = relu %x : f32[8] !{sharding=["<mesh<[], device_ids=[4]>, []>"]}
  return %y
}`, "a tensor on device 4 in a world of 4 ranks"},
	} {
		m, err := ir.Parse("f.ir", "world 4\ngroup @world = [[0, 1, 2, 3]]\n\n"+c.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newPartitioner(m.Func("f"), strategy{propagation: shardy}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// What lies on one device is that device's, where ranks differ in it.
func TestAlone(t *testing.T) {
	const text = `world 4
group @world = [[0, 1, 2, 3]]

func @f(%x: f32[8] !{sharding=["<mesh<['x'=4]>, [{'x'}]>"]}) -> (f32[8], f32[2], f32[8]) {
  %p = shard %x on @world {dim=0} : f32[2]
  %v = view %p : f32[2] !{sharding=["<mesh<[], device_ids=[3]>, []>"]}
  %w = add %v, %p : f32[2] !{sharding=["<mesh<[], device_ids=[1]>, []>"]}
  %y = cat %w, %v, %v, %w {dim=0} : f32[8] !{sharding=["<mesh<['x'=4]>, [{'x'}]>"]}
  %u = neg %y : f32[8] !{sharding=["<mesh<[], device_ids=[2]>, []>"]}
  return %y, %w, %u
}`
	m, err := ir.Parse("f.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := try(m, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	x := p.in[0][0].Data
	v := x[6*4:]
	w := slices.Concat(sum32(v[:4], x[2*4:3*4]), sum32(v[4:], x[3*4:4*4]))
	y := interp.Tensor{DType: ir.F32, Shape: []int64{8}, Data: slices.Concat(w, v, v, w)}
	for r := range p.want {
		p.want[r] = []interp.Tensor{y, {DType: ir.F32, Shape: []int64{2}, Data: w}, negated(y)}
	}
	if err := p.agrees(0); err != nil {
		t.Errorf("%v\n%s", err, m)
	}
}

func sum32(a, b []byte) []byte {
	f := func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(f(a)+f(b)))
}

func negated(x interp.Tensor) interp.Tensor {
	x.Data = slices.Clone(x.Data)
	for i := 3; i < len(x.Data); i += 4 {
		x.Data[i] ^= 0x80
	}
	return x
}

// Places along a dimension that is cut in parts are not those of a piece in one.
func TestPlacesInParts(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 4

func @f(%x: f32[3,4,6] !{sharding=["<mesh<['x'=2, 'y'=2]>, [{}, {'x'}, {'y'}]>"]}) -> (f32[3,24]) {
  %v = view %x : f32[3,24]
  %i = iota {start=2, step=5} : i64[3]
  %j = view %i : i64[3,1]
  %y = scatter %v, %j {dim=1, value=0.5} : f32[3,24]
  return %y
}`)
	if err != nil {
		t.Fatal(err)
	}
	text, err := agree(m, 1, false, 0)
	if err != nil || !strings.Contains(text, "shard") {
		t.Errorf("%v\n%s", err, text)
	}
}
