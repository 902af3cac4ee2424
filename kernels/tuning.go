package kernels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Tuning is where protocols take over from each other, in bytes of the operand or
// result, whichever is larger, and how many blocks a launch gets at most. A
// calibration run writes it; DefaultTuning holds figures measured on H200s.
type Tuning struct {
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
	BesideMove       uint64 `json:"beside_move"`       // all_gather and all_to_all beside compute: copies without kernels from here, 0 for never
	BesideReduce     uint64 `json:"beside_reduce"`     // reduce_scatter and all_reduce likewise
	BesidePiece      uint64 `json:"beside_piece"`      // smaller pieces go to the peers by co-resident kernels instead of by copies
	CoresidentReduce uint64 `json:"coresident_reduce"` // reductions of up to that many bytes go by co-resident kernels, larger ones by kernels that wait for room
	EngineChunks     int    `json:"engine_chunks"`     // chunks that hide the fold in all_reduce by copy engines, 0 for one
	// MulticastReduce is from where all_reduce goes through multicast in groups that have
	// it (symm.WorldOptions.Multicast), MulticastGather the same of all_gather; 0 for
	// never, which is the default: multicast was never measured.
	MulticastReduce uint64 `json:"multicast_reduce"`
	MulticastGather uint64 `json:"multicast_gather"`
}

// DefaultTuning is for n ranks on one host: measured on 2 and 4 H200s, scaled for other
// numbers by what a rank sends.
func DefaultTuning(n int) Tuning {
	t := Tuning{OneShot: 192 << 10, TwoShot: 16 << 20, PacketGather: 512 << 10, PacketReduce: 16 << 20, PacketAll: 512 << 10,
		Push: 16 << 20, PushScatter: 48 << 20, EngineMove: 256 << 20, EngineReduce: 128 << 20, EngineInPlace: 128 << 20, EngineChunks: 2, Blocks: 128, PushBlocks: 256,
		BesideMove: 1 << 20, BesideReduce: 4 << 20, BesidePiece: 64 << 10, CoresidentReduce: 8 << 20}
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

// Check rejects values no planner can use.
func (t *Tuning) Check() error {
	if t.Blocks < 1 || t.Blocks > MaxBlocks || t.PushBlocks < 1 || t.PushBlocks > MaxBlocks {
		return fmt.Errorf("blocks %d and push_blocks %d must be in [1, %d]", t.Blocks, t.PushBlocks, MaxBlocks)
	}
	if t.EngineChunks < 0 || t.EngineChunks > 64 {
		return fmt.Errorf("engine_chunks %d must be in [0, 64]", t.EngineChunks)
	}
	return nil
}

// Calibration is what a calibration run on a machine found: a Tuning for each size of
// a group. A nil Calibration stands for the defaults. Ranks that plan collectives
// together must have equal ones, which Digest compares.
type Calibration struct {
	Machine string         // what it was measured on
	Groups  map[int]Tuning // by number of ranks
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

// calibrationFile is the JSON form, groups by number of ranks; encoding/json writes maps in
// the order of keys.
type calibrationFile[T any] struct {
	Version int       `json:"version"`
	Machine string    `json:"machine"`
	Groups  map[int]T `json:"groups"`
	Digest  string    `json:"digest"`
}

const calibrationVersion = 1

// WriteTo writes the calibration as JSON with its digest.
func (c *Calibration) WriteTo(w io.Writer) (int64, error) {
	raw, err := json.MarshalIndent(calibrationFile[Tuning]{calibrationVersion, c.Machine, c.Groups, c.Digest()}, "", "  ")
	if err != nil {
		return 0, err
	}
	n, err := w.Write(append(raw, '\n'))
	return int64(n), err
}

// CalibrationError says what is wrong with a calibration file.
type CalibrationError struct {
	Name string
	Err  error
}

// Error names the file.
func (e *CalibrationError) Error() string { return fmt.Sprintf("%s: %v", e.Name, e.Err) }

// Unwrap gives the cause.
func (e *CalibrationError) Unwrap() error { return e.Err }

// ReadCalibration reads what WriteTo wrote; name is what errors call it. Unknown and
// missing fields are errors, and so is a digest that does not match: a table changed
// by hand, or by a release whose defaults differ, has to be calibrated anew or its
// digest removed.
func ReadCalibration(name string, r io.Reader) (*Calibration, error) {
	fail := func(err error) (*Calibration, error) { return nil, &CalibrationError{name, err} }
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var f calibrationFile[json.RawMessage]
	if err := d.Decode(&f); err != nil {
		return fail(err)
	}
	if f.Version != calibrationVersion {
		return fail(fmt.Errorf("version %d, this program reads %d", f.Version, calibrationVersion))
	}
	c := &Calibration{Machine: f.Machine, Groups: map[int]Tuning{}}
	var fields map[string]uint64
	raw, err := json.Marshal(DefaultTuning(2))
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return fail(err)
	}
	for _, n := range slices.Sorted(maps.Keys(f.Groups)) {
		if n < 2 || n > MaxRanks {
			return fail(fmt.Errorf("a group of %d ranks: 2 to %d are possible", n, MaxRanks))
		}
		var has map[string]uint64
		if err := json.Unmarshal(f.Groups[n], &has); err != nil {
			return fail(fmt.Errorf("group of %d: %w", n, err))
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if _, ok := has[field]; !ok {
				return fail(fmt.Errorf("group of %d: %q is missing", n, field))
			}
		}
		strict := json.NewDecoder(bytes.NewReader(f.Groups[n]))
		strict.DisallowUnknownFields()
		var t Tuning
		if err := strict.Decode(&t); err != nil {
			return fail(fmt.Errorf("group of %d: %w", n, err))
		}
		if err := t.Check(); err != nil {
			return fail(fmt.Errorf("group of %d: %w", n, err))
		}
		c.Groups[n] = t
	}
	if f.Digest != "" && f.Digest != c.Digest() {
		return fail(fmt.Errorf("its digest is %.12s, the values have %.12s: calibrate again, or remove the digest to use the values as they are", f.Digest, c.Digest()))
	}
	return c, nil
}
