package code

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/dim"
	rt "github.com/seed-ee968945/concert/runtime"
)

const (
	// MostSymbols is how many sizes one kernel reads; copy.cu has the same number.
	MostSymbols = 64
	// ToldBytes is the page in which the kernel tells the host of sizes that are wrong: the number of the check,
	// and behind 8 bytes the values.
	ToldBytes = 8 + 8*MostSymbols
)

// InMemory says that a size is the word at an address, as the kernels' size_of takes it.
func InMemory(at driver.Ptr) int64 { return int64(uint64(at) | 1<<63) }

// SizesTable is what the kernel of sizes reads: the places of the symbols that tensors hold, relative to base, with
// their bounds, and the code of the expressions. A check has no results.
func SizesTable(l *rt.DynamicSizes, list []dim.Dim, base int64, checks bool) ([]int64, error) {
	var head, code []int64
	for _, r := range l.Reads {
		head = append(head, base+r.At.Off, r.Max)
	}
	first := len(head) + 2*len(list)
	for i, e := range list {
		word := int64(i)
		if checks {
			word = -1
		}
		head = append(head, int64(first+len(code)), word)
		var err error
		code, err = e.AppendCode(code, func(name string) (int, int64) {
			return slices.IndexFunc(l.Reads, func(r rt.SizeRead) bool { return r.Symbol == name }), l.Known[name]
		})
		if err != nil {
			return nil, fmt.Errorf("size %v: %w: %w", e, err, rt.ErrUnsupported)
		}
	}
	return append(head, code...), nil
}

// Sizes are the parameters of the kernel of sizes.
type Sizes struct {
	Table, Words         driver.Ptr // what it reads, and where the expressions' values go
	Wrong, Told          driver.Ptr // a word that is not 0 once a check has found sizes to be wrong; the host's page
	Symbols, Expressions int
	Check                int // its number, -1 for none
}

// AddSizes adds the kernel.
func (c *Code) AddSizes(cmds *driver.Commands, s Sizes) error {
	if c.sizes == 0 {
		return fmt.Errorf("sizes that tensors hold need a kernel: %w", c.none)
	}
	var params []byte
	for _, v := range []driver.Ptr{s.Table, s.Words, s.Wrong, s.Told} {
		params = binary.LittleEndian.AppendUint64(params, uint64(v))
	}
	for _, v := range []int{s.Symbols, s.Expressions, s.Check} {
		params = binary.LittleEndian.AppendUint32(params, uint32(v))
	}
	cmds.Launch(driver.Main, c.sizes, 1, MostSymbols, 0, params)
	return nil
}

// OnHost is the kernel on a driver whose memory is the host's.
func (s Sizes) OnHost(table []int64, told uintptr) {
	word := func(at driver.Ptr) []byte { return driver.HostBytes(at, 8) }
	values := make([]int64, s.Symbols)
	wrong := binary.LittleEndian.Uint32(driver.HostBytes(s.Wrong, 4))
	before := wrong
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(word(driver.Ptr(table[2*i]))))
		if values[i] < 0 || values[i] > table[2*i+1] {
			wrong = 1
		}
	}
	for pass := range 2 {
		for i := range s.Expressions {
			from, to := table[2*(s.Symbols+i)], table[2*(s.Symbols+i)+1]
			if pass == 0 && to < 0 && wrong == 0 && dim.RunCode(table[from:], values) < 0 {
				wrong = 1
			}
			if pass == 1 && to >= 0 {
				v := int64(0)
				if wrong == 0 {
					v = dim.RunCode(table[from:], values)
				}
				binary.LittleEndian.PutUint64(word(s.Words+driver.Ptr(8*to)), uint64(v))
			}
		}
	}
	if wrong != 0 && before == 0 {
		binary.LittleEndian.PutUint32(driver.HostBytes(s.Wrong, 4), 1)
		for i, v := range values {
			binary.LittleEndian.PutUint64(hostmem.Bytes(told, ToldBytes)[8+8*i:], uint64(v))
		}
		hostmem.Store32(told, uint32(s.Check+1))
	}
}
