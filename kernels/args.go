package kernels

import (
	"encoding/binary"
	"fmt"
)

// Limits of the argument structures; src/prelude.h has the same numbers.
const (
	MaxRanks  = 16  // ranks of a group
	MaxSegs   = 32  // tensors of one launch
	MaxBlocks = 256 // blocks of one launch
)

// Offsets in a control page; src/prelude.h has the same numbers.
const (
	CtlAbort       = 0    // u32, nonzero aborts every wait of the rank
	CtlLeft        = 4    // u32 of the host page, nonzero once a kernel of the rank has left early
	CtlRecord      = 64   // error record, see Record
	CtlEpoch       = 1024 // u32[MaxBlocks], collectives by packets without flags done
	CtlDirect      = 2048 // u32[MaxBlocks], direct collectives done
	CtlBytes       = 65536
	CtlStreamFlags = 28672 // flags that streams set and wait for; no kernel touches them

	CtlEntry       = 512   // u32[MaxRanks], direct collectives entered by each peer
	CtlGatherEntry = 576   // u32[MaxRanks], matmuls that gather entered by each peer
	CtlGathered    = 640   // u32[MaxRanks], the last of them for which each peer's rows have come
	CtlSent        = 704   // u32[MaxRanks], pieces sent to the k-th peer in this one
	CtlTicket      = 768   // u32, pieces dealt out in this one
	CtlSenders     = 772   // u32, blocks that have seen the last
	CtlGathers     = 31744 // u32[MaxBlocks], matmuls that gather done
	CtlFlagged     = 30720 // u32[MaxBlocks], collectives by packets with flags done
	CtlChunks      = 3072  // u32[MaxBlocks], chunks of the push protocol done
	CtlExit        = 4096  // u32[MaxBlocks][MaxRanks], direct collectives left by each peer's block
	CtlChannel     = 20480 // per channel u32[MaxRanks] signals, u32[MaxRanks] consumed
	CtlPushed      = 32768 // u32[MaxBlocks][MaxRanks], chunks that each peer's block has staged
	CtlCredit      = 49152 // u32[MaxBlocks][MaxRanks], chunks of ours that each peer's block has folded
)

// FirstResetEpoch is the first of the last epochs of packets with flags, whose calls clear what
// older ones left; src/flagged.h has the same number.
const FirstResetEpoch = 0xfffffffc

// Refresh is after how many direct collectives the exit counters of blocks that a call
// has not are set; src/direct.h has the same number.
const Refresh = 1 << 30

// Chunks of the push protocol (src/push.h): units of a chunk and slots that a block has
// for each source; all_reduce folds PushWindow chunks at a time, reduce_scatter pushes
// all to one peer before the next where a block has no more than ScatterFew. The
// sources have the same numbers.
const (
	PushUnits  = 2048
	PushDepth  = 2 * PushWindow
	PushWindow = 2

	ScatterUnits = 1024
	ScatterDepth = 8
	ScatterFew   = 4
)

// Poison fills the scratch of packets that are their own flags.
const Poison = 0xffffffff

// Seg is one tensor of a bucket. Bytes is the piece that one rank contributes or
// receives: the whole tensor of an all_reduce, the shard of an all_gather or a
// reduce_scatter, the slice of an all_to_all.
type Seg struct {
	Src, Dst uint64
	Bytes    uint64
	unit0    uint32
}

// Args is what a collective kernel takes. Its zero fields are valid where a
// kernel does not use them.
type Args struct {
	Peer    [MaxRanks]uint64 // Peer[k] is the symmetric base of group rank (Rank+k)%N
	Ctl     uint64           // own control page
	Host    uint64           // device address of the host page
	Timeout uint64           // nanoseconds, 0 for ever
	Scratch uint64           // offset from a base; with multicast the address of all ranks' memory
	Half    uint64
	Slot    uint64
	Region  uint64
	N, Rank uint32
	Units   uint32
	Per     uint32
	Op      uint32
	DType   uint32
	Seq     uint32
	Segs    []Seg
}

const headBytes = 216

// Pack appends the argument structure of a kernel that takes segs segments (1 or
// MaxSegs) to b, as the kernel's ABI lays it out.
func (a *Args) Pack(b []byte, segs int) []byte {
	b = a.packHead(b)
	for i := 0; i < segs; i++ {
		var s Seg
		if i < len(a.Segs) {
			s = a.Segs[i]
		}
		b = binary.LittleEndian.AppendUint64(b, s.Src)
		b = binary.LittleEndian.AppendUint64(b, s.Dst)
		b = binary.LittleEndian.AppendUint64(b, s.Bytes)
		b = binary.LittleEndian.AppendUint32(b, s.unit0)
		b = binary.LittleEndian.AppendUint32(b, s.align())
	}
	return b
}

func (a *Args) packHead(b []byte) []byte {
	for _, p := range a.Peer {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	for _, v := range [...]uint64{a.Ctl, a.Host, a.Timeout, a.Scratch, a.Half, a.Slot, a.Region} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, v := range [...]uint32{a.N, a.Rank, a.Units, a.Per, a.Op, a.DType, a.Seq, uint32(len(a.Segs))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// PackAllToAllV appends the arguments of a kernel that PlanUneven chose: four columns, each
// with a row for every rank.
func (a *Args) PackAllToAllV(b []byte, t Table) []byte {
	b = a.packHead(b)
	for _, col := range [...]*[MaxRanks]uint64{&t.Src, &t.Dst, &t.Send, &t.Recv} {
		for _, v := range col {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

// PackTable appends the arguments of the kernel that finds its table in memory.
func (a *Args) PackTable(b []byte, table uint64) []byte {
	return binary.LittleEndian.AppendUint64(a.packHead(b), table)
}

// Table is the pieces of an uneven all_to_all: row d is what goes to group rank d
// (Send bytes at Src) and what comes from it (Recv bytes to Dst).
type Table struct {
	Src, Dst, Send, Recv [MaxRanks]uint64
}

// Unpack reads what Pack wrote for segs segments. The fake driver uses it.
func Unpack(b []byte, segs int) (*Args, error) {
	if len(b) < headBytes+32*segs {
		return nil, fmt.Errorf("argument buffer of %d bytes is shorter than %d", len(b), headBytes+32*segs)
	}
	a := &Args{}
	u64 := func() uint64 { v := binary.LittleEndian.Uint64(b); b = b[8:]; return v }
	u32 := func() uint32 { v := binary.LittleEndian.Uint32(b); b = b[4:]; return v }
	for i := range a.Peer {
		a.Peer[i] = u64()
	}
	for _, p := range [...]*uint64{&a.Ctl, &a.Host, &a.Timeout, &a.Scratch, &a.Half, &a.Slot, &a.Region} {
		*p = u64()
	}
	for _, p := range [...]*uint32{&a.N, &a.Rank, &a.Units, &a.Per, &a.Op, &a.DType, &a.Seq} {
		*p = u32()
	}
	n := int(u32())
	if n > segs {
		return nil, fmt.Errorf("argument buffer names %d segments, the kernel takes %d", n, segs)
	}
	for i := 0; i < n; i++ {
		s := Seg{Src: u64(), Dst: u64(), Bytes: u64(), unit0: u32()}
		u32()
		a.Segs = append(a.Segs, s)
	}
	return a, nil
}

// UnpackTable reads what PackUneven wrote.
func UnpackTable(b []byte) (*Args, Table, error) {
	var t Table
	if len(b) < headBytes+TableBytes {
		return nil, t, fmt.Errorf("argument buffer of %d bytes is too short for a table", len(b))
	}
	a, err := Unpack(b, 0)
	if err != nil {
		return nil, t, err
	}
	return a, ReadTable(b[headBytes:]), nil
}

// UnpackPlace reads what PackTable wrote.
func UnpackPlace(b []byte) (a *Args, table uint64, err error) {
	if a, err = Unpack(b, 0); err == nil && len(b) < headBytes+8 {
		err = fmt.Errorf("argument buffer of %d bytes is too short for a table's address", len(b))
	}
	if err != nil {
		return nil, 0, err
	}
	return a, binary.LittleEndian.Uint64(b[headBytes:]), nil
}

// TableBytes is how much a Table in memory is.
const TableBytes = 4 * 8 * MaxRanks

// ReadTable reads a Table from memory.
func ReadTable(b []byte) (t Table) {
	for _, col := range [...]*[MaxRanks]uint64{&t.Src, &t.Dst, &t.Send, &t.Recv} {
		for i := range col {
			col[i] = binary.LittleEndian.Uint64(b)
			b = b[8:]
		}
	}
	return t
}

// align is the log2 of the alignment that source, destination and size share, at most 4.
func (s *Seg) align() uint32 {
	v := s.Src | s.Dst | s.Bytes | 16
	a := uint32(0)
	for v&1 == 0 {
		v >>= 1
		a++
	}
	return a
}

// SetUnits numbers the units of unit bytes over all segments and sets Units.
// It fails when they are too many for a launch.
func (a *Args) SetUnits(unit uint64) error {
	var n uint64
	for i := range a.Segs {
		a.Segs[i].unit0 = uint32(n)
		n += (a.Segs[i].Bytes + unit - 1) / unit
		if n >= 1<<31 {
			return fmt.Errorf("segments of more than %d units of %d bytes: split the call", 1<<31, unit)
		}
	}
	a.Units = uint32(n)
	return nil
}

// Find gives the segment that holds a unit and the unit's byte offset in it, for
// units of size bytes as numbered by SetUnits.
func (a *Args) Find(unit uint32, size uint64) (seg int, off uint64) {
	for seg+1 < len(a.Segs) && unit >= a.Segs[seg+1].unit0 {
		seg++
	}
	return seg, uint64(unit-a.Segs[seg].unit0) * size
}

// Codes of a Record.
const (
	CodeTimeout  = 1 // a wait passed its deadline
	CodeMismatch = 2 // a peer sends another number of bytes than this rank expects
)

// Record is the error record of a rank, written once by the first wait that found something wrong.
type Record struct {
	Seq, Op           uint32
	Rank, Peer, Block uint32
	Want, Seen        uint64 // bytes of a mismatch, else what the wait was for and what was there
	ElapsedNanos      uint64 // of a timeout
	State, Code       uint32 // 2 in a complete record
}

// ParseRecord reads a record from the bytes at CtlRecord of a control or host
// page; ok is false while none has been written completely.
func ParseRecord(b []byte) (r Record, ok bool) {
	if len(b) < 48 {
		return r, false
	}
	w := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	r = Record{State: w(0), Code: w(1), Seq: w(2), Op: w(3), Rank: w(4), Peer: w(5), Block: w(6), Want: uint64(w(7)), Seen: uint64(w(8))}
	if r.Code == CodeMismatch {
		r.Want |= uint64(w(10)) << 32
		r.Seen |= uint64(w(11)) << 32
	} else {
		r.ElapsedNanos = uint64(w(10)) | uint64(w(11))<<32
	}
	return r, r.State == 2
}
