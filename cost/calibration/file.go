// Package calibration is the file format for measurements of a machine: times of
// collectives and of launches, their interference, the sizes at which collectives switch
// protocols, and the algorithms of matmuls. A file may have any of these; each reader takes what
// it needs.
//
// The format is JSON with one entry per line, sorted, so that equal data are equal bytes.
// Unknown or missing fields are errors with line and column, and so are values that no
// measurement can give.
//
// Decisions based on a file must be the same on all ranks: give all of them the same file.
package calibration

import (
	"cmp"
	"slices"
	"strings"
)

// Own is the implementation of this runtime's collectives, in the form that they have
// overlapped with compute.
const Own = "concert"

// OwnAlone are the same collectives in the form that they have with nothing beside them.
const OwnAlone = "concert-alone"

// File is a calibration.
type File struct {
	Machine string `json:"machine"` // what was measured, for people
	// Digest is the SHA-256 of the file without it, in hexadecimal. A file that has none
	// was written by hand.
	Digest string `json:"digest,omitempty"`
	Ranks  int    `json:"ranks,omitempty"` // of the programs that were measured
	// EdgeUs is the time from an end on one stream to the beginning on another that
	// waits for it.
	EdgeUs float64 `json:"edge_us,omitempty"`
	// MemoryScale is the time of generated kernels over the sum of what the nodes in
	// them were said to cost; 0 if that was not measured.
	MemoryScale float64 `json:"memory_scale,omitempty"`
	// StepUs is what a step takes besides what it does: from its start until the first
	// call begins, and from the end of the last until that of the step.
	StepUs       float64       `json:"step_us,omitempty"`
	Collectives  []Collective  `json:"collectives,omitempty"`  // ascending by op, impl, ranks, bytes
	Instructions []Instruction `json:"instructions,omitempty"` // ascending by key
	Chains       []Instruction `json:"chains,omitempty"`       // ascending by key (program.Program.ChainKey)
	Overlaps     []Overlap     `json:"beside,omitempty"`       // ascending by launch, collective
	Protocols    []Protocols   `json:"protocols,omitempty"`    // ascending by ranks
	Matmuls      *Matmuls      `json:"matmuls,omitempty"`
}

// Instruction is the time of one instruction, by its key (program.Program.CostKey).
type Instruction struct {
	Key string  `json:"key"`
	Us  float64 `json:"us"`
	// Late says that it is of a program that was made with the rest of the table.
	// cost.Apply passes it over, so that the same program is made again, of which all is
	// known.
	Late bool `json:"late,omitempty"`
	// Speed, of a collective that has compute beside it or of a chain that has
	// collectives beside it, is how fast it goes on meanwhile, as a part of its speed
	// alone; 0 if that was not measured.
	Speed float64 `json:"speed,omitempty"`
}

// Collective is the time of a collective of one tensor. Bytes count the larger of operand
// and result: the gathered buffer of an all_gather, the whole input of a reduce_scatter.
type Collective struct {
	Op    string  `json:"op"`
	Impl  string  `json:"impl"` // such as nccl or Own
	Ranks int     `json:"ranks"`
	Bytes int64   `json:"bytes"`
	Us    float64 `json:"us"`
}

// Overlap is how fast a launch and a collective go on while both run, as parts of
// their speeds alone.
type Overlap struct {
	Launch     string  `json:"launch"`     // op: matmul, fused, ...
	Collective string  `json:"collective"` // op
	Compute    float64 `json:"compute"`
	Comm       float64 `json:"comm"`
}

// Protocols are the limits for groups of that many ranks.
type Protocols struct {
	Ranks  int    `json:"ranks"`
	Limits Limits `json:"limits"`
}

// Limits are where protocols take over from each other, in bytes of the operand or
// result, whichever is larger, and how many blocks a launch gets at most.
type Limits struct {
	OneShot          uint64 `json:"one_shot"`          // all_reduce: one shot up to here
	TwoShot          uint64 `json:"two_shot"`          // all_reduce: two shots up to here
	PacketGather     uint64 `json:"packet_gather"`     // all_gather: packets up to here
	PacketReduce     uint64 `json:"packet_reduce"`     // reduce_scatter
	PacketAll        uint64 `json:"packet_all"`        // all_to_all
	Push             uint64 `json:"push"`              // all_reduce: push above, direct below
	PushScatter      uint64 `json:"push_scatter"`      // the same for reduce_scatter
	EngineReduce     uint64 `json:"engine_reduce"`     // all_reduce out of place: copy engines from here, for every tensor of the bucket, 0 for never
	EngineInPlace    uint64 `json:"engine_in_place"`   // the same in place
	EngineMove       uint64 `json:"engine_move"`       // all_gather and all_to_all, for every tensor of the bucket, 0 for never
	Blocks           int    `json:"blocks"`            // direct kernels
	PushBlocks       int    `json:"push_blocks"`       // push kernels, two to a multiprocessor
	OverlappedMove   uint64 `json:"beside_move"`       // all_gather and all_to_all overlapped with compute: copies without kernels from here, 0 for never
	OverlappedReduce uint64 `json:"beside_reduce"`     // reduce_scatter and all_reduce likewise
	OverlappedPiece  uint64 `json:"beside_piece"`      // smaller pieces go to the peers by co-resident kernels instead of by copies
	CoresidentReduce uint64 `json:"coresident_reduce"` // reductions of up to that many bytes go by co-resident kernels, larger ones by kernels that wait for room
	EngineChunks     int    `json:"engine_chunks"`     // chunks that hide the fold in all_reduce by copy engines, 0 for one
	// MulticastReduce is from where all_reduce goes through multicast in groups that have
	// it (symm.WorldOptions.Multicast), MulticastGather the same of all_gather; 0 for
	// never, which is the default: multicast was never measured.
	MulticastReduce uint64 `json:"multicast_reduce"`
	MulticastGather uint64 `json:"multicast_gather"`
}

// Matmuls are the algorithms that were fastest on one kind of GPU with one version of the
// library, whose numbers mean something else in another.
type Matmuls struct {
	GPU        string      `json:"gpu"`
	Library    uint64      `json:"library"`
	Algorithms []Algorithm `json:"algorithms"` // ascending by problem
}

// Algorithm is that of one matmul, in the texts of package cuda/lt.
type Algorithm struct {
	Problem string `json:"problem"`
	Algo    string `json:"algo"`
}

// sort brings the lists into their order.
func (f *File) sort() {
	for _, list := range [][]Instruction{f.Instructions, f.Chains} {
		slices.SortFunc(list, func(a, b Instruction) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortFunc(f.Collectives, func(a, b Collective) int {
		return cmp.Or(strings.Compare(a.Op, b.Op), strings.Compare(a.Impl, b.Impl), cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Bytes, b.Bytes))
	})
	slices.SortFunc(f.Overlaps, func(a, b Overlap) int {
		return cmp.Or(strings.Compare(a.Launch, b.Launch), strings.Compare(a.Collective, b.Collective))
	})
	slices.SortFunc(f.Protocols, func(a, b Protocols) int { return cmp.Compare(a.Ranks, b.Ranks) })
	if f.Matmuls != nil {
		slices.SortFunc(f.Matmuls.Algorithms, func(a, b Algorithm) int { return strings.Compare(a.Problem, b.Problem) })
	}
}

// Clone is a copy whose times can change without those of f.
func (f *File) Clone() *File {
	out := *f
	out.Instructions, out.Chains = slices.Clone(f.Instructions), slices.Clone(f.Chains)
	out.Collectives, out.Overlaps = slices.Clone(f.Collectives), slices.Clone(f.Overlaps)
	return &out
}

// Count is how many collectives of an implementation were measured.
func (f *File) Count(impl string) int {
	n := 0
	for _, c := range f.Collectives {
		if c.Impl == impl {
			n++
		}
	}
	return n
}

// Micros is the time of the instruction of that key.
func (f *File) Micros(key string) (float64, bool) {
	i, ok := find(f.Instructions, key)
	return i.Us, ok
}

// ChainMicros is the time of the chain of that key.
func (f *File) ChainMicros(key string) (float64, bool) {
	i, ok := find(f.Chains, key)
	return i.Us, ok
}

// Speed is how fast the collective of that key goes on overlapped with compute, as a part of
// its speed alone.
func (f *File) Speed(key string) (float64, bool) {
	i, _ := find(f.Instructions, key)
	return i.Speed, i.Speed != 0
}

// ChainSpeed is how fast the chain of that key goes on overlapped with collectives, as a part of
// its speed alone.
func (f *File) ChainSpeed(key string) (float64, bool) {
	i, _ := find(f.Chains, key)
	return i.Speed, i.Speed != 0
}

// Timed is the instruction of that key, unless it is of a program that was made with the
// rest of the table.
func (f *File) Timed(key string) (us float64, ok bool) {
	i, ok := find(f.Instructions, key)
	return i.Us, ok && !i.Late
}

func find(list []Instruction, key string) (Instruction, bool) {
	i, ok := slices.BinarySearchFunc(list, key, func(e Instruction, k string) int { return strings.Compare(e.Key, k) })
	if !ok {
		return Instruction{}, false
	}
	return list[i], true
}

// Speeds are those of a launch and a collective that run beside each other, by op: of
// the pair that was measured, else the mean of those with the same launch, else of
// all, else 1.
func (f *File) Speeds(launch, collective string) (compute, comm float64) {
	for _, alike := range []func(b *Overlap) bool{
		func(b *Overlap) bool { return b.Launch == launch && b.Collective == collective },
		func(b *Overlap) bool { return b.Launch == launch },
		func(*Overlap) bool { return true },
	} {
		n := 0.0
		compute, comm = 0, 0
		for i := range f.Overlaps {
			if b := &f.Overlaps[i]; alike(b) {
				compute, comm, n = compute+b.Compute, comm+b.Comm, n+1
			}
		}
		if n > 0 {
			return compute / n, comm / n
		}
	}
	return 1, 1
}
