package kernels

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/seed-ee968945/concert/cost/calibration"
)

// Tuning is where protocols take over from each other: measured ones are in a
// calibration; DefaultTuning holds figures measured on H200s.
type Tuning = calibration.Limits

// DefaultTuning is for n ranks on one host: measured on 2 and 4 H200s, scaled for other
// numbers by what a rank sends.
func DefaultTuning(n int) Tuning {
	t := Tuning{OneShot: 192 << 10, TwoShot: 16 << 20, PacketGather: 512 << 10, PacketReduce: 16 << 20, PacketAll: 512 << 10,
		Push: 16 << 20, PushScatter: 48 << 20, EngineMove: 256 << 20, EngineReduce: 128 << 20, EngineInPlace: 128 << 20, EngineChunks: 2, Blocks: 128, PushBlocks: 256,
		OverlappedMove: 1 << 20, OverlappedReduce: 4 << 20, OverlappedPiece: 64 << 10, CoresidentReduce: 8 << 20}
	if n == 3 { // not measured
		t.EngineReduce, t.EngineInPlace = 0, 0
	}
	switch {
	case n <= 2:
		t.OneShot, t.PacketGather, t.PacketAll = 4<<20, 1<<20, 1<<20
		t.EngineReduce, t.EngineInPlace = 256<<20, 256<<20
	case n > 4:
		t.OneShot = 64 << 10
	}
	return t
}

// Calibration is what a calibration has of protocols: a Tuning for each size of a group, by
// number of ranks. A nil Calibration stands for the defaults. Ranks that plan collectives
// together must have equal ones, which Digest compares.
type Calibration struct{ Groups map[int]Tuning }

// CalibrationOf is what f has of protocols. The error, of values that no planner can use,
// is a *calibration.ValueError.
func CalibrationOf(f *calibration.File) (*Calibration, error) {
	c := &Calibration{Groups: map[int]Tuning{}}
	for i, p := range f.Protocols {
		at := fmt.Sprintf("protocols.%d.", i)
		if err := cmp.Or(checkRange(at+"ranks", p.Ranks, 2, MaxRanks), checkTuning(at+"limits.", &p.Limits)); err != nil {
			return nil, err
		}
		c.Groups[p.Ranks] = p.Limits
	}
	return c, nil
}

// CheckTuning rejects values no planner can use.
func CheckTuning(t *Tuning) error { return checkTuning("", t) }

func checkTuning(path string, t *Tuning) error {
	return cmp.Or(checkRange(path+"blocks", t.Blocks, 1, MaxBlocks), checkRange(path+"push_blocks", t.PushBlocks, 1, MaxBlocks), checkRange(path+"engine_chunks", t.EngineChunks, 0, 64))
}

func checkRange(path string, v, low, high int) error {
	if v < low || v > high {
		return &calibration.ValueError{Path: path, Msg: fmt.Sprintf("%d is not in [%d, %d]", v, low, high)}
	}
	return nil
}

// For is the tuning for a group of n ranks: the measured one, else the default.
func (c *Calibration) For(n int) Tuning {
	if c != nil {
		if t, ok := c.Groups[n]; ok {
			return t
		}
	}
	return DefaultTuning(n)
}

// Digest is the SHA-256, in hexadecimal, of what For gives for every size.
func (c *Calibration) Digest() string {
	var b bytes.Buffer
	for n := 2; n <= MaxRanks; n++ {
		fmt.Fprintf(&b, "%d %+v\n", n, c.For(n))
	}
	return Hash(b.Bytes())
}
