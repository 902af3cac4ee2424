// Package safetensors reads and writes the safetensors file format: eight bytes
// with the length of a header, a JSON header that gives every tensor's element
// type, shape and byte range, and the tensors' bytes, little-endian and row-major,
// without gaps.
//
// Reading checks everything that the format promises before any tensor is used:
// the header's length, its JSON, element types, sizes against shapes, and that the
// byte ranges cover the data exactly, in whatever order. A reader never allocates
// more than a constant factor of the bytes it has actually received, so a file
// that lies about its size costs nothing.
//
// Writing is deterministic: the header names tensors in ascending order, and the
// data holds them by descending element size and then by name, so that every
// tensor is aligned to its element size.
package safetensors

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// MaxHeader is the largest header accepted or written, in bytes. It is the limit of
// the reference implementation.
const MaxHeader = 100_000_000

// ErrFormat is in the chain of every error about the contents of a file, as
// opposed to errors of the reader or writer beneath.
var ErrFormat = errors.New("malformed safetensors file")

// Tensor is one named dense tensor.
type Tensor struct {
	Name  string
	DType dtype.DType
	Shape []int64
	Data  []byte // row-major, little-endian
}

// File is a whole file in memory.
type File struct {
	Tensors  []Tensor          // in ascending order of name
	Metadata map[string]string // nil if the file has none
}

// Get returns the tensor called name.
func (f *File) Get(name string) (Tensor, bool) {
	i, ok := slices.BinarySearchFunc(f.Tensors, name, func(t Tensor, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Entry describes one tensor of a header.
type Entry struct {
	Name       string
	DType      dtype.DType
	Shape      []int64
	Begin, End int64 // byte range, counted from the end of the header
}

// Header is the description at the start of a file.
type Header struct {
	Entries  []Entry           // in ascending order of name
	Metadata map[string]string // nil if there is none
	DataSize int64             // bytes after the header
}

// typeNames pairs our element types with those of the format. The format has more;
// they are errors here.
var typeNames = [...]struct {
	d    dtype.DType
	name string
}{
	{dtype.F64, "F64"}, {dtype.F32, "F32"}, {dtype.F16, "F16"}, {dtype.BF16, "BF16"},
	{dtype.I64, "I64"}, {dtype.I32, "I32"}, {dtype.I8, "I8"}, {dtype.U8, "U8"}, {dtype.Bool, "BOOL"},
	{dtype.I16, "I16"}, {dtype.U16, "U16"}, {dtype.U32, "U32"}, {dtype.U64, "U64"},
	{dtype.F8E4M3FN, "F8_E4M3"}, {dtype.F8E5M2, "F8_E5M2"}, {dtype.F8E8M0FNU, "F8_E8M0"},
}

func typeName(d dtype.DType) (string, bool) {
	for _, t := range typeNames {
		if t.d == d {
			return t.name, true
		}
	}
	return "", false
}

func parseType(name string) (dtype.DType, bool) {
	for _, t := range typeNames {
		if t.name == name {
			return t.d, true
		}
	}
	return dtype.Invalid, false
}

// byteSize returns the size of a dense tensor; false if a dimension is negative or
// the size overflows.
func byteSize(d dtype.DType, shape []int64) (int64, bool) {
	n := uint64(d.Size())
	for _, dim := range shape {
		if dim < 0 {
			return 0, false
		}
	}
	for _, dim := range shape {
		if dim == 0 {
			return 0, true
		}
	}
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		n = lo
	}
	return int64(n), true
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
