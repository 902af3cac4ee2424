package cudnn

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

//go:embed move.cu
var moveSource string

var moveUnit = &library.Unit{Name: "cudnn_move.cu", Source: moveSource, Options: []string{"--std=c++17"}}

// move copies elements into another order. A place is of the operand or result that a port
// names, or in the workspace.
type move struct {
	port     port
	back     bool   // from the workspace to the port
	offset   uint64 // in the workspace
	size     int    // of an element
	shape    []int64
	from, to []int64 // strides; none is 0 in to, where the dimension has several elements
}

const moveTile = 64

// merged is m without dimensions of one element, and with one for those that are behind one
// another on both sides.
func (m *move) merged() (shape, from, to []int64) {
	for d, n := range m.shape {
		last := len(shape) - 1
		switch {
		case n == 1:
		case last >= 0 && from[last] == n*m.from[d] && to[last] == n*m.to[d]:
			shape[last], from[last], to[last] = shape[last]*n, m.from[d], m.to[d]
		default:
			shape, from, to = append(shape, n), append(from, m.from[d]), append(to, m.to[d])
		}
	}
	return shape, from, to
}

// launch gives the number of blocks and the parameters of the kernel. It reports false for
// more dimensions than that takes.
func (m *move) launch(src, dst uintptr) (grid int, params []byte, ok bool) {
	shape, from, to := m.merged()
	for len(shape) < 2 {
		shape, from, to = append(shape, 1), append(from, 1), append(to, 1)
	}
	if len(shape) > 6 {
		return 0, nil, false
	}
	inner := func(strides []int64) (at int) {
		for d := range strides {
			if shape[d] > 1 && (shape[at] == 1 || strides[d] < strides[at]) {
				at = d
			}
		}
		return at
	}
	b, a := inner(from), inner(to)
	along := int64(0)
	if a == b { // then the largest beside it is tiled
		along = 1
		for d := range shape {
			if d != b && (a == b || shape[d] > shape[a]) {
				a = d
			}
		}
	}
	tiles := func(d int) int64 { return (shape[d] + moveTile - 1) / moveTile }
	blocks := tiles(a) * tiles(b)
	var rest [3][4]int64
	rest[0] = [4]int64{1, 1, 1, 1}
	k := 0
	for d := range shape {
		if d != a && d != b {
			rest[0][k], rest[1][k], rest[2][k] = shape[d], from[d], to[d]
			blocks *= shape[d]
			k++
		}
	}
	words := []int64{int64(src), int64(dst), shape[a], shape[b], from[a], from[b], to[a], to[b]}
	words = append(words, slices.Concat(rest[0][:], rest[1][:], rest[2][:], []int64{tiles(a), tiles(b), along})...)
	for _, w := range words {
		params = binary.LittleEndian.AppendUint64(params, uint64(w))
	}
	return int(blocks), params, blocks < 1<<31
}

// add adds a launch of the kernel f.
func (m *move) add(c *driver.Commands, f driver.Func, r *request) error {
	src, dst := r.at[m.port], uintptr(r.workspace)+uintptr(m.offset)
	if m.back {
		src, dst = dst, src
	}
	grid, params, ok := m.launch(src, dst)
	if !ok {
		return fmt.Errorf("%w: cuDNN: %s: a tensor of shape %v and strides %v cannot be copied", library.ErrNotServed, r.op, m.shape, m.from)
	}
	c.Launch(driver.Main, f, grid, 256, 0, params)
	return nil
}
