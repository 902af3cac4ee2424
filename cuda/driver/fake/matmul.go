//go:build linux

package fake

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TensorMap packs the map's own words, after the checks that the driver makes.
func (f *Driver) TensorMap(_ driver.Ctx, m *driver.TensorMap) (out [driver.TensorMapBytes]byte, err error) {
	if err := f.call(); err != nil {
		return out, err
	}
	words := []uint64{uint64(m.At), m.Sizes[0], m.Sizes[1], m.Sizes[2], m.Strides[0], m.Strides[1], uint64(m.Box[0]), uint64(m.Box[1])}
	if m.At%16 != 0 || m.Strides[0]%16 != 0 || m.Strides[1]%16 != 0 || min(m.Sizes[0], m.Sizes[1], m.Sizes[2]) == 0 ||
		m.Box[0]%8 != 0 || m.Box[0]-1 >= 256 || m.Box[1]-1 >= 256 || m.Strides[0] >= 1<<40 || m.Strides[1] >= 1<<40 {
		return out, &driver.Error{Call: "cuTensorMapEncodeTiled", Code: driver.CodeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: fmt.Sprintf("%+v", *m)}
	}
	for i, w := range words {
		binary.LittleEndian.PutUint64(out[8*i:], w)
	}
	return out, nil
}

// tensorMap reads a map out of a kernel's parameters.
func tensorMap(b []byte) *driver.TensorMap {
	w := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return &driver.TensorMap{At: driver.Ptr(w(0)), Sizes: [3]uint64{w(1), w(2), w(3)}, Strides: [2]uint64{w(4), w(5)}, Box: [2]uint32{uint32(w(6)), uint32(w(7))}}
}

// matmulKernel gives the work of a matmul of kernels/src/matmul.h, or false. The sum of
// each element, or of each part of K, is taken in float32 in order; tensor cores round otherwise.
func matmulKernel(name string, buf []byte) (*matmul, error, bool) {
	part := strings.Split(name, "_") // matmul, type, transposes, columns, blocks of a cluster, and perhaps what it carries
	if len(part) < 5 || part[0] != "matmul" {
		return nil, nil, false
	}
	carries := strings.Join(part[5:], "_")
	tiles, bytes := 3*driver.TensorMapBytes, matmulBytes
	switch carries {
	case "gather":
		bytes += driver.TensorMapBytes
	case "scatter":
		tiles += (kernels.MaxRanks - 1) * driver.TensorMapBytes
		bytes = tiles + 24
	}
	if len(buf) < bytes {
		return nil, fmt.Errorf("%s: parameters of %d bytes", name, len(buf)), true
	}
	m := &matmul{typ: map[string]dtype.DType{"bf16": dtype.BF16, "f16": dtype.F16}[part[1]], transA: part[2][0] == 't', transB: part[2][1] == 't'}
	if _, err := fmt.Sscanf(part[3]+"_"+part[4], "%dx%d_%dx%dx%d", &m.height, &m.columns, &m.below, &m.beside, &m.parts); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err), true
	}
	for i, to := range []**driver.TensorMap{&m.a, &m.b, &m.d} {
		*to = tensorMap(buf[i*driver.TensorMapBytes:])
	}
	for i, to := range []*int{&m.rows, &m.cols, &m.depth, &m.batch} {
		*to = int(binary.LittleEndian.Uint32(buf[tiles+4*i:]))
	}
	switch carries {
	case "gather":
		m.gathered = tensorMap(buf[matmulBytes:])
	case "scatter":
		for z := range m.batch {
			m.to = append(m.to, tensorMap(buf[(2+z)*driver.TensorMapBytes:]))
		}
		m.first = int(binary.LittleEndian.Uint32(buf[tiles+20:]))
	}
	return m, nil, true
}

// matmulBytes are the parameters of a matmul without gaps; one that gathers has a map and arguments more.
const matmulBytes = 3*driver.TensorMapBytes + 20

type matmul struct {
	typ                      dtype.DType
	transA, transB           bool
	a, b, d, gathered        *driver.TensorMap
	to                       []*driver.TensorMap // of results that belong to several ranks, in the order of the kernel
	first                    int                 // whose are the first
	height, columns          int                 // of a tile
	below, beside, parts     int                 // blocks of a cluster
	rows, cols, depth, batch int
}

// run computes the tiles of all blocks.
func (m *matmul) run() error {
	for z := range m.batch {
		if m.to != nil {
			m.d = m.to[z]
			m.product(m.a, (m.first+z)%m.batch, 0, 0)
		} else {
			m.product(m.a, z, z, z)
		}
	}
	return nil
}

// product multiplies whole panels of A and B, with zeros beyond the tensors as the copies bring
// them: those of a batch each, into D's.
//
//go:norace
func (m *matmul) product(from *driver.TensorMap, za, zb, zd int) {
	const step = 64
	k := m.depth * step
	rows, cols := m.rows*m.below*m.height, m.cols*m.beside*m.columns
	a := m.panel(from, m.transA, za, rows, k)
	b := m.panel(m.b, !m.transB, zb, cols, k)
	for i := range min(rows, int(m.d.Sizes[1])) {
		out := bytesAt(m.d.At+driver.Ptr(uint64(zd)*m.d.Strides[1]+uint64(i)*m.d.Strides[0]), 2*m.d.Sizes[0])
		for j := range min(cols, int(m.d.Sizes[0])) {
			putFloat(m.typ, out[2*j:], m.sum(a[i*k:(i+1)*k], b[j*k:(j+1)*k]))
		}
	}
}

// sum multiplies a row by a column. Tiles of 64 rows have the halves of each step apart, the
// blocks of a cluster parts of K.
//
//go:norace
func (m *matmul) sum(a, b []float32) (sum float32) {
	const step = 64
	for p := range m.parts {
		var half [2]float32
		for x := m.depth * p / m.parts * step; x < m.depth*(p+1)/m.parts*step; x++ {
			h := 0
			if m.height == 64 {
				h = x % step / 32
			}
			half[h] += a[x] * b[x]
		}
		sum += half[0] + half[1]
	}
	return sum
}

// panel reads n rows of k elements; across says that the tensor's rows run along n.
//
//go:norace
func (m *matmul) panel(t *driver.TensorMap, across bool, z, n, k int) []float32 {
	out := make([]float32, n*k)
	rows, inner := int(t.Sizes[1]), int(t.Sizes[0])
	for r := range rows {
		row := bytesAt(t.At+driver.Ptr(uint64(z)*t.Strides[1]+uint64(r)*t.Strides[0]), 2*t.Sizes[0])
		for c := range inner {
			i, x := r, c
			if across {
				i, x = c, r
			}
			if i < n && x < k {
				out[i*k+x] = getFloat(m.typ, row[2*c:])
			}
		}
	}
	return out
}
