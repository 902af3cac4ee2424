//go:build linux

package fake

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// Run interprets a command buffer as shim.c does.
func (f *Driver) Run(c driver.Ctx, words []uint64) error {
	for i := 0; i < len(words); {
		n := int(words[i] >> 8)
		if n < 3 || i+n > len(words) {
			return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		a := words[i+1 : i+n]
		if err := f.command(c, words[i]&255, a); err != nil {
			return err
		}
		i += n
	}
	return nil
}

func (f *Driver) command(c driver.Ctx, op uint64, a []uint64) error {
	s := driver.Stream(a[0])
	need := map[uint64]int{driver.OpLaunch: 4, driver.OpRecord: 2, driver.OpWait: 2, driver.OpCopy: 4, driver.OpMemset32: 4, driver.OpGraph: 2, driver.OpFlags: 3, driver.OpCall: 2, driver.OpLaunchDependent: 4, driver.OpMark: 2, driver.OpLaunchCluster: 4}[op]
	if need == 0 || len(a) < need {
		return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
	}
	switch op {
	case driver.OpLaunch, driver.OpLaunchDependent:
		n := int(a[3] >> 32)
		if len(a) < 4+(n+7)/8 {
			return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		var buf []byte
		for _, w := range a[4:] {
			buf = binary.LittleEndian.AppendUint64(buf, w)
		}
		return f.Launch(c, s, driver.Func(a[1]), int(uint32(a[2])), int(a[2]>>32), int(uint32(a[3])), buf[:n])
	case driver.OpLaunchCluster:
		return f.launchCluster(c, s, a)
	case driver.OpRecord:
		return f.EventRecord(c, driver.Event(a[1]), s)
	case driver.OpMark:
		return f.mark(driver.Event(a[1]), s)
	case driver.OpWait:
		return f.StreamWait(c, s, driver.Event(a[1]))
	case driver.OpCopy:
		return f.Copy(c, s, driver.Ptr(a[1]), driver.Ptr(a[2]), a[3])
	case driver.OpMemset32:
		return f.Memset32(c, s, driver.Ptr(a[1]), uint32(a[2]), a[3])
	case driver.OpGraph:
		return f.GraphLaunch(c, driver.Exec(a[1]), s)
	case driver.OpCall:
		return f.callback(s, driver.CFunc(a[1]), a[2:])
	}
	return f.flags(s, a[1:])
}

// launchCluster launches a kernel with its parameters packed without gaps.
func (f *Driver) launchCluster(c driver.Ctx, s driver.Stream, a []uint64) error {
	grid, cluster := int(uint32(a[2])), int(a[2]>>48)
	if cluster == 0 || grid%cluster != 0 {
		return &driver.Error{Call: "cuLaunchKernelEx", Code: driver.CodeInvalid, Name: "CUDA_ERROR_INVALID_VALUE", Text: "the grid is no multiple of the cluster"}
	}
	var buf []byte
	for p := a[4:]; len(p) > 0; {
		n, words := int(p[0]), p[1:1+(p[0]+7)/8]
		for _, w := range words {
			buf = binary.LittleEndian.AppendUint64(buf, w)
		}
		buf = buf[:len(buf)-8*len(words)+n]
		p = p[1+len(words):]
	}
	return f.Launch(c, s, driver.Func(a[1]), grid, int(uint16(a[2]>>32)), int(uint32(a[3])), buf)
}

// flags writes words and waits for words, in order.
func (f *Driver) flags(s driver.Stream, a []uint64) error {
	a = slices.Clone(a)
	return f.work("cuStreamBatchMemOp", s, func() error {
		for i := 0; i+1 < len(a); i += 2 { // replays come here again: a stays as it is
			at, v := uintptr(a[i+1]), uint32(a[i])
			if a[i]&driver.FlagWait == 0 {
				hostmem.Store32(at, v)
				continue
			}
			f.await(at, v)
		}
		return nil
	})
}
