package attention

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/machine"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

//go:embed args.cuh
var argsSource string

//go:embed half.cuh
var halfSource string

//go:embed simple.cuh
var simpleTypes string

//go:embed short.cu
var shortSource string

//go:embed forward.cu
var forwardSource string

//go:embed tile.cuh
var tileSource string

//go:embed backward.cu
var backwardSource string

//go:embed simple.cu
var simpleSource string

// unit is a translation unit: a kernel's source with its constants.
type unit struct {
	name    string
	defines []string // "NAME value"
	types   string   // between the machine and args.cuh
	body    string
}

// source is all of it, with the machine.
func (u *unit) source() string { return u.on(machine.Source) }

// on is the source on a machine.
func (u *unit) on(machine string) string {
	var b strings.Builder
	for _, d := range u.defines {
		fmt.Fprintf(&b, "#define %s\n", d)
	}
	for _, s := range []string{machine, u.types, argsSource, u.body} {
		b.WriteString(s)
	}
	return b.String()
}

// launch is one kernel of a call.
type launch struct {
	unit                *unit
	name                string
	grid, block, shared int
	params              []byte
	ahead               []library.Memory // that it reads before the kernel in front has ended
}

// plan chooses the kernels of a call.
func plan(p *Problem) ([]launch, error) {
	for _, n := range []int64{p.Batch, p.Heads, p.Queries, p.Keys, p.Dim, p.DimV} {
		if n > math.MaxInt32-1024 {
			return nil, fmt.Errorf("%w: %s with a size of %d", library.ErrNotServed, p.Op, n)
		}
	}
	f := formOf(p)
	if n := f.workspace(p); n > p.Bytes {
		return nil, fmt.Errorf("%w: %s needs %d bytes of workspace, there are %d", library.ErrNotServed, p.Op, n, p.Bytes)
	}
	switch {
	case f == nothing:
		return nil, nil
	case f == simple:
		return p.simple()
	case p.Op == Backward:
		return p.gradients(f == short)
	case f == short:
		return p.short()
	}
	return p.tiled()
}

// blocks checks the number of blocks of a launch.
func (p *Problem) blocks(n ...int64) (int, error) {
	all := int64(1)
	for _, x := range n {
		if x != 0 && all > math.MaxInt32/x {
			return 0, fmt.Errorf("%w: %s of %d x %d heads and %d queries has too many blocks", library.ErrNotServed, p.Op, p.Batch, p.Heads, p.Queries)
		}
		all *= x
	}
	return int(all), nil
}

// halfUnit is a unit of the kernels for half precision.
func (p *Problem) halfUnit(name, body string, defines ...string) *unit {
	bias := 0
	if p.Bias != nil {
		bias = 1
		if p.Bias.DType == dtype.F32 {
			bias = 2
		}
	}
	bf := 0
	if p.DType == dtype.BF16 {
		bf = 1
	}
	pad := 64
	if max(p.Dim, p.DimV) > 64 {
		pad = 128
	}
	defines = append(defines, fmt.Sprintf("BF16 %d", bf), fmt.Sprintf("BIAS %d", bias), fmt.Sprintf("PAD %d", pad))
	return &unit{name: name, defines: defines, types: halfSource, body: body}
}

func (p *Problem) pad() int {
	if max(p.Dim, p.DimV) > 64 {
		return 128
	}
	return 64
}

// shortWarps is the number of warps of a block of the short forward kernel.
func (p *Problem) shortWarps() int64 {
	warps := int64(1)
	for warps < shortWarps && warps*shortRows < p.seen() {
		warps *= 2
	}
	return warps
}

// gradientShape is the number of warps of a block of the backward pass in one launch,
// and of rows that it walks over at a time.
func (p *Problem) gradientShape() (warps, cols int64) {
	warps, cols = backwardWarps, backwardCols
	for warps > 1 && max(p.Queries, p.Keys) <= cols/2 {
		warps, cols = warps/2, cols/2
	}
	return warps, cols
}

// short is one launch for few queries; its warps share the keys.
func (p *Problem) short() ([]launch, error) {
	warps := int(p.shortWarps())
	tiles := (p.Queries + shortRows - 1) / shortRows
	grid, err := p.blocks(p.Batch, p.Heads, tiles)
	if err != nil {
		return nil, err
	}
	shared := 0
	if warps > 1 {
		shared = warps*p.pad()/64*4096 + warps*shortRows*8
	}
	return []launch{{unit: p.halfUnit("attention_short", shortSource, fmt.Sprintf("WARPS %d", warps)), name: "attention_short",
		grid: grid, block: 32 * warps, shared: shared, params: p.params(&work{tiles: tiles}), ahead: []library.Memory{spanned(&p.V)}}}, nil
}

// spanned is what a tensor that is not empty spans.
func spanned(t *library.Tensor) library.Memory {
	lo, hi := int64(0), int64(0)
	for i, n := range t.Shape {
		if d := (n - 1) * t.Strides[i]; d < 0 {
			lo += d
		} else {
			hi += d
		}
	}
	size := int64(t.DType.Size())
	return library.Memory{At: t.At + driver.Ptr(lo*size), Bytes: uint64((hi - lo + 1) * size)}
}

// tiled is one launch on tiles of queries and keys. Blocks of 128 queries that leave
// multiprocessors with less than the two that they hold are halved.
func (p *Problem) tiled() ([]launch, error) {
	halves := int64(2)
	if n := (p.Queries + forwardRows - 1) / forwardRows; float64(n)*float64(p.Batch*p.Heads) < 2*multiprocessors {
		halves = 1
	}
	return p.tiledBy(halves)
}

// tiledBy has 16 * halves queries in a warp.
func (p *Problem) tiledBy(halves int64) ([]launch, error) {
	rows := forwardRows / 2 * halves
	tiles := (p.Queries + rows - 1) / rows
	grid, err := p.blocks(p.Batch, p.Heads, tiles)
	if err != nil {
		return nil, err
	}
	first := 0
	if p.Bias != nil || !(float32(p.Scale*math.Log2E) > 0) {
		first = 1
	}
	return []launch{{unit: p.halfUnit("attention_forward", tileSource+forwardSource, fmt.Sprintf("SCALE_FIRST %d", first), fmt.Sprintf("HALVES %d", halves)), name: "attention_forward",
		grid: grid, block: 128, shared: int(rows+4*forwardCols) * 2 * p.pad(), params: p.params(&work{tiles: tiles})}}, nil
}

// gradients is the backward pass, in one launch or two.
func (p *Problem) gradients(both bool) ([]launch, error) {
	warps, cols, flag := int64(backwardWarps), int64(backwardCols), 0
	if both {
		flag = 1
		warps, cols = p.gradientShape()
	}
	rows := 16 * warps
	w := work{tiles: (p.Queries + rows - 1) / rows, keyTiles: (p.Keys + rows - 1) / rows}
	rest, err := p.blocks(p.Batch, p.KeyHeads, w.keyTiles)
	if err == nil {
		w.units, err = p.blocks(p.Batch, p.Heads, w.tiles)
	}
	if err == nil {
		w.all, err = p.blocks(int64(w.units) + int64(rest))
	}
	if err != nil {
		return nil, err
	}
	u := p.halfUnit("attention_backward", tileSource+backwardSource, fmt.Sprintf("BOTH %d", flag), fmt.Sprintf("WARPS %d", warps), fmt.Sprintf("COLS %d", cols))
	k := launch{unit: u, name: "attention_backward_both", grid: w.all, block: int(32 * warps),
		shared: int(2*rows+4*cols)*2*p.pad() + int(cols)*16, params: p.params(&w)}
	if both {
		return []launch{k}, nil
	}
	q := k
	q.name, q.grid = "attention_backward_queries", w.units
	k.name, k.grid = "attention_backward_keys", rest
	return []launch{q, k}, nil
}

// kinds are the numbers of types in simple.cuh.
var kinds = map[dtype.DType]int{dtype.F32: 0, dtype.F64: 1, dtype.BF16: 2, dtype.F16: 3}

// simple is one launch for any operands.
func (p *Problem) simple() ([]launch, error) {
	bias := p.DType
	if p.Bias != nil {
		bias = p.Bias.DType
	}
	var n [3]int
	for i, t := range []dtype.DType{p.DType, p.LSE.DType, bias} {
		k, ok := kinds[t]
		if !ok {
			return nil, fmt.Errorf("%w: %s with %v", library.ErrNotServed, p.Op, t)
		}
		n[i] = k
	}
	for _, t := range p.wide() {
		if t.DType != p.DType {
			return nil, fmt.Errorf("%w: %s with %v beside %v", library.ErrNotServed, p.Op, t.DType, p.DType)
		}
	}
	u := &unit{name: "attention_simple", types: simpleTypes, body: simpleSource, defines: []string{"BF16 0",
		fmt.Sprintf("ELEM %d", n[0]), fmt.Sprintf("LSE %d", n[1]), fmt.Sprintf("BIAS %d", n[2])}}
	groups := func(width int64) int64 { return max((width+simpleWidth-1)/simpleWidth, 1) }
	w, name := work{}, "attention_simple"
	var err error
	if p.Op == Forward {
		w.units, err = p.blocks(p.Batch, p.Heads, p.Queries, groups(p.DimV))
		w.all = w.units
	} else {
		var rest int
		name += "_backward"
		if w.units, err = p.blocks(p.Batch, p.Heads, p.Queries, groups(p.Dim)); err == nil {
			rest, err = p.blocks(p.Batch, p.KeyHeads, p.Keys, groups(max(p.Dim, p.DimV)))
		}
		if err == nil {
			w.all, err = p.blocks(int64(w.units) + int64(rest))
		}
	}
	if err != nil {
		return nil, err
	}
	return []launch{{unit: u, name: name, grid: (w.all + simpleWarps - 1) / simpleWarps, block: 32 * simpleWarps, params: p.params(&w)}}, nil
}

// work is how a launch divides a problem.
type work struct {
	tiles, keyTiles int64
	units, all      int
}

// params writes struct args of args.cuh.
func (p *Problem) params(w *work) []byte {
	b := make([]byte, 0, 512)
	word := func(v ...uint64) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
	}
	num := func(v ...int64) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
	}
	strides := func(n int, ts ...*library.Tensor) {
		for _, t := range ts {
			for i := range n {
				s := int64(0)
				if i < len(t.Strides) {
					s = t.Strides[i]
				}
				word(uint64(s))
			}
		}
	}
	word(uint64(p.Q.At), uint64(p.K.At), uint64(p.V.At), uint64(p.Out.At), uint64(p.LSE.At))
	strides(4, &p.Q, &p.K, &p.V, &p.Out)
	strides(3, &p.LSE)
	causal := int64(0)
	if p.Causal {
		causal = 1
	}
	num(w.tiles, p.Heads, p.Heads/p.KeyHeads, p.Queries, p.Keys, p.Dim, p.DimV, causal, p.KeyHeads, 0)
	word(math.Float64bits(p.Scale))
	num(int64(math.Float32bits(float32(p.Scale*math.Log2E))), int64(w.units), int64(w.all), w.keyTiles)
	var at, n [2]uint64
	for i := range min(len(p.Zero), 2) {
		at[i], n[i] = uint64(p.Zero[i].At), words(&p.Zero[i])
	}
	word(at[0], at[1], n[0], n[1])
	none := &library.Tensor{}
	bias := none
	if p.Bias != nil {
		bias = p.Bias
	}
	word(uint64(bias.At))
	strides(4, bias)
	word(uint64(p.Grad.At), uint64(p.DQ.At), uint64(p.DK.At), uint64(p.DV.At), uint64(p.Workspace))
	strides(4, &p.Grad, &p.DQ, &p.DK, &p.DV)
	return b
}

// words is the size of a dense tensor in words of 32 bits.
func words(t *library.Tensor) uint64 {
	n := uint64(t.DType.Size())
	for _, d := range t.Shape {
		n *= uint64(d)
	}
	return n / 4
}
