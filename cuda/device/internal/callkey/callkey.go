// Package callkey encodes calls of a step: with all that a plan of them depends on, as keys of
// plans, and with what must be the same on all ranks, to be compared.
package callkey

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Kernel appends a launch. A stream counts for its workspace.
func Kernel(b []byte, k *rt.Kernel, stream int64) []byte {
	b = text(text(append(b, 'k'), k.Op), k.Target)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(k.Unit)), stream)
	b = tensors(tensors(b, k.Outs), k.Ins)
	if k.Op == "call" {
		b = text(text(b, k.Group), k.Label)
	}
	return k.Attrs.AppendText(b)
}

// Sizes appends the sizes that a launch gives its kernel.
func Sizes(b []byte, sizes []int64) []byte { return ints(b, sizes) }

// Collective appends a collective, the part of staging that it begins with, and where the ranks of its
// group have results if they exchange addresses.
func Collective(b []byte, c *rt.Collective, part int, dsts [][]int64) []byte {
	b = text(text(append(b, 'c', byte(c.Op)), c.Group), c.Reduce)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(c.Dim)), int64(c.Root))
	b = append(b, byte(part+1))
	b = tensors(tensors(ints(b, c.Pairs), c.Outs), c.Ins)
	for _, list := range [][][]int64{c.InSplits, c.OutSplits, dsts} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, row := range list {
			b = ints(b, row)
		}
	}
	return text(b, c.Label)
}

// Copy appends a copy.
func Copy(b []byte, dst, src rt.Tensor) []byte {
	return tensors(append(b, 'm'), []rt.Tensor{dst, src})
}

// Compared appends what of a collective in loops and branches must be the same on all ranks of its
// group.
func Compared(b []byte, c *rt.Collective, nested []program.Kind) []byte {
	from := len(b)
	b = append(b, byte(c.Op), byte(len(c.InSplits)), byte(len(nested)))
	for _, k := range nested {
		b = append(b, byte(k))
	}
	b = text(b, c.Reduce)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(c.Dim)), int64(c.Root))
	b = ints(b, c.Pairs)
	for _, list := range [][]rt.Tensor{c.Ins, c.Outs} {
		if c.InSplits != nil { // each rank has rows of its own number
			list = slices.Clone(list)
			for i := range list {
				list[i].Shape, list[i].Strides = append([]int64{-1}, list[i].Shape[min(1, len(list[i].Shape)):]...), nil
			}
		}
		if c.CrossStage {
			list = slices.Clone(list)
			for i := range list {
				list[i].Off = 0
			}
		}
		b = tensors(b, list)
	}
	return binary.AppendUvarint(b, uint64(len(b)-from)) // so that calls cannot run into each other
}

func text(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func ints(b []byte, v []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	for _, x := range v {
		b = binary.AppendVarint(b, x)
	}
	return b
}

func tensors(b []byte, ts []rt.Tensor) []byte {
	b = binary.AppendUvarint(b, uint64(len(ts)))
	for i := range ts {
		t := &ts[i]
		b = binary.AppendVarint(append(b, byte(t.DType)), t.Off)
		b = ints(b, t.Shape)
		if t.Strides != nil {
			b = ints(append(b, 1), t.Strides)
		} else {
			b = append(b, 0)
		}
	}
	return b
}
