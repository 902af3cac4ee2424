package kernels

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// entry is a kernel of an image.
type entry struct {
	image string
	bytes int // of its parameters
}

// takes checks that a launch's kernel is in the image that it names, and takes its arguments.
func takes(t *testing.T, have map[string]entry, l *Launch) {
	t.Helper()
	if got, want := (entry{l.Image, len(l.Args.Pack(nil, l.Segs))}), have[l.Kernel]; got != want {
		t.Fatalf("%s is of %q and takes %d bytes of arguments; a launch names %q and has %d", l.Kernel, want.image, want.bytes, got.image, got.bytes)
	}
}

// entries are the kernels that an architecture runs, by name.
func entries(t *testing.T, arch int) map[string]entry {
	t.Helper()
	set, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	re := regexp.MustCompile(`\.visible \.entry (\w+)\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]`)
	out := map[string]entry{}
	for _, name := range set.Manifest.Names() {
		if _, err := set.Manifest.Find(name, arch); err != nil {
			continue
		}
		ptx, err := set.Image(name, arch, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range re.FindAllStringSubmatch(string(ptx), -1) {
			n, _ := strconv.Atoi(g[2])
			out[g[1]] = entry{name, n}
		}
	}
	return out
}

// spillsAllowed lists the bytes that kernels spill which may have no more registers
// (src/coresident.h) and are as fast with the spill as anything that was tried without it.
var spillsAllowed = map[string]int{"coresident_reduce_f16_n8": 4, "coresident_reduce_bf16_n8": 4}

func TestImagesHold(t *testing.T) {
	set, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	// Instructions that the memory model or the house forbids.
	bad := regexp.MustCompile(`ld\.global\.nc|multimem|multicast\b[^:]|\btrap\b|\bbrkpt\b|\.local`)
	tame := regexp.MustCompile(`ld\.global\.nc|\btrap\b|\bbrkpt\b|\.local`)
	// These alone may use multicast and a later ISA. They are off, see UsesMulticast.
	exempt := map[string]string{"allreduce_multicast": ".version 8.2\n", "allgather_multicast": ".version 8.1\n"}
	for _, im := range set.Manifest.Images {
		ptx, err := im.Load(im.Arch, true)
		if err != nil {
			t.Error(err)
			continue
		}
		bad, version := bad, ".version 8.0\n"
		if v, ok := exempt[im.Name]; ok {
			bad, version = tame, v
			delete(exempt, im.Name)
			if im.Arch != 90 || !bytes.Contains(ptx, []byte("multimem.st")) {
				t.Errorf("%s for sm_%d needs no exemption", im.Name, im.Arch)
			}
		}
		if m := bad.Find(ptx); m != nil {
			t.Errorf("%s for sm_%d uses %s", im.Name, im.Arch, m)
		}
		if !strings.Contains(string(ptx), version) {
			t.Errorf("%s for sm_%d is not of PTX ISA %q", im.Name, im.Arch, version)
		}
		if im.Cubin != "" {
			if _, err := im.Load(CubinArch, false); err != nil {
				t.Error(err)
			}
		}
	}
	if len(exempt) > 0 {
		t.Errorf("exempt, but not there: %v", exempt)
	}
	for name, r := range set.Manifest.Resources {
		if r.SpillBytes > spillsAllowed[name] || r.StackBytes > 2*spillsAllowed[name] {
			t.Errorf("%s spills %d bytes, its stack has %d", name, r.SpillBytes, r.StackBytes)
		}
	}
	total := int64(0)
	err = fs.WalkDir(files, "images", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			total += info.Size()
		}
		return nil
	})
	if err != nil || total > 8<<20 {
		t.Errorf("images take %d bytes, at most 8 MiB are allowed (%v)", total, err)
	}
}

func scratch(n int) Scratch {
	return Scratch{Region: 32 << 20, FlaggedHalf: 8 << 20, StagingSize: 128 << 20}
}

// TestPlansName checks over the whole space of calls that every plan names a kernel
// of the image that it names, with an argument structure of that kernel's size.
func TestPlansName(t *testing.T) {
	have := entries(t, 80)
	plans := 0
	for _, op := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
		for _, dt := range dtype.All() {
			for _, red := range []Reduction{Sum, Avg, Prod, Min, Max} {
				for n := 2; n <= MaxRanks; n++ {
					for _, segs := range []int{1, 3} {
						for _, algo := range []Algo{Auto, OneShot, TwoShot, LL, Direct, Push} {
							for _, bytes := range []uint64{8, 4096, 256 << 10, 4 << 20, 64 << 20, 1 << 30} {
								c := Call{Op: op, DType: dt, Red: red, N: n, Algo: algo, Symmetric: true}
								for i := 0; i < segs; i++ {
									c.Segs = append(c.Segs, Seg{Src: 1 << 20, Dst: 1 << 30, Bytes: bytes})
								}
								l, err := Plan(c, scratch(n), DefaultTuning(n))
								var pe *PlanError
								if errors.As(err, &pe) {
									if algo == Auto && (!c.reduces() || Reduces(red, dt)) && bytes*uint64(segs)*uint64(n) < 1<<33 {
										t.Fatalf("%v %v %v n=%d %d x %d bytes: %v", op, dt, red, n, segs, bytes, err)
									}
									continue
								}
								if err != nil {
									t.Fatal(err)
								}
								plans++
								takes(t, have, l)
								if l.Grid < 1 || l.Grid > MaxBlocks || l.Block < 32 || l.Block > 512 {
									t.Fatalf("%s: %d x %d", l.Kernel, l.Grid, l.Block)
								}
							}
						}
					}
				}
			}
		}
	}
	if plans < 10000 {
		t.Errorf("only %d plans", plans)
	}
	if size, got := have["all_to_all_uneven_ll"].bytes, len((&Args{}).PackAllToAllV(nil, Table{})); size != got {
		t.Errorf("all_to_all_uneven_ll takes %d bytes of arguments, %d are packed", size, got)
	}
}

// TestPlanFits makes sure that no packet leaves its slot and no block its staging.
func TestPlanFits(t *testing.T) {
	for n := 2; n <= MaxRanks; n++ {
		for bytes := uint64(16); bytes < 1<<28; bytes = bytes*3/2 + 16 {
			for _, op := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
				for _, algo := range []Algo{Auto, OneShot, TwoShot, LL, Push} {
					for _, blocks := range []int{0, 200, 1000} {
						c := Call{Op: op, DType: dtype.BF16, N: n, Algo: algo, Blocks: blocks, Symmetric: true, Segs: []Seg{{Src: 16, Dst: 16, Bytes: bytes &^ 1}}}
						sc := scratch(n)
						l, err := Plan(c, sc, DefaultTuning(n))
						if err != nil {
							continue
						}
						a := l.Args
						work := uint64(a.Units)
						switch l.Algo {
						case TwoShot:
							work = uint64(a.Per)
							if a.Slot*uint64(n) > sc.Region || (uint64(n)-1)*work >= uint64(a.Units) {
								t.Fatalf("%v n=%d %d bytes: slot %d, %d of %d units", l.Algo, n, bytes, a.Slot, work, a.Units)
							}
						case OneShot:
							if a.Slot*uint64(n) > 2*sc.Region {
								t.Fatalf("slots of %d bytes", a.Slot)
							}
						case Push:
							if uint64(l.Grid*n)*pushStaging > sc.StagingSize {
								t.Fatalf("n=%d: %d blocks do not fit in staging", n, l.Grid)
							}
							continue
						case Direct:
							continue
						}
						if work*16 > a.Slot {
							t.Fatalf("%v %v n=%d %d bytes: %d packets in a slot of %d bytes", op, l.Algo, n, bytes, work, a.Slot)
						}
					}
				}
			}
		}
	}
}

func TestArgsRoundTrip(t *testing.T) {
	a := &Args{Ctl: 1, Host: 2, Timeout: 3, Scratch: 4, Half: 5, Slot: 6, Region: 7, N: 8, Rank: 9, Per: 11, Op: 12, DType: 13, Seq: 14,
		Segs: []Seg{{Src: 16, Dst: 32, Bytes: 33}, {Src: 8, Dst: 64, Bytes: 100}}}
	a.Peer[3] = 77
	if err := a.SetUnits(16); err != nil {
		t.Fatal(err)
	}
	if a.Units != 10 {
		t.Errorf("%d units of 33 and 100 bytes", a.Units)
	}
	b, err := Unpack(a.Pack(nil, MaxSegs), MaxSegs)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, b, cmp.AllowUnexported(Seg{}), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	for unit, want := range map[uint32][2]uint64{0: {0, 0}, 2: {0, 32}, 3: {1, 0}, 9: {1, 96}} {
		if seg, off := a.Find(unit, 16); uint64(seg) != want[0] || off != want[1] {
			t.Errorf("unit %d is at segment %d offset %d, want %v", unit, seg, off, want)
		}
	}
	if _, err := Unpack(make([]byte, 10), 1); err == nil {
		t.Error("ten bytes are no arguments")
	}
	if err := (&Args{Segs: []Seg{{Bytes: 1 << 40}}}).SetUnits(16); err == nil {
		t.Error("2^36 units were accepted")
	}
}

func TestChoice(t *testing.T) {
	for _, c := range []struct {
		op    Collective
		bytes uint64 // of one rank's piece
		sym   bool
		want  Algo
	}{
		{AllReduce, 1 << 10, true, OneShot},
		{AllReduce, 1 << 20, true, TwoShot},
		{AllReduce, 1 << 20, false, TwoShot},
		{AllReduce, 64 << 20, true, Push},
		{AllGather, 1 << 10, false, LL},
		{AllGather, 16 << 20, true, Direct},
		{ReduceScatter, 1 << 20, true, OneShot},
		{ReduceScatter, 8 << 20, true, Direct},
		{ReduceScatter, 256 << 20, true, Push},
		{AllToAll, 1 << 20, true, Direct},
	} {
		l, err := Plan(Call{Op: c.op, DType: dtype.BF16, N: 4, Symmetric: c.sym, Segs: []Seg{{Bytes: c.bytes}}}, scratch(4), DefaultTuning(4))
		if err != nil || l.Algo != c.want {
			t.Errorf("%v %d symmetric %v: %v, %v, want %v", c.op, c.bytes, c.sym, l, err, c.want)
		}
	}
	if l, err := Plan(Call{Op: AllReduce, DType: dtype.F32, N: 2, Segs: []Seg{{}, {}}}, scratch(2), DefaultTuning(2)); l != nil || err != nil {
		t.Errorf("zero bytes: %v %v", l, err)
	}
}

// Ranks that share a device leave most of its multiprocessors to what their kernels wait for,
// whatever is planned and whoever chose the blocks.
func TestSharedDevice(t *testing.T) {
	for _, sharing := range []int{2, 4, 8} {
		most := 0
		for _, algo := range []Algo{Auto, OneShot, TwoShot, LL, Direct, Push} {
			for _, op := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
				for k := range 28 {
					bytes, blocks := uint64(16)<<(k&^1), k%2*1000
					sc, tune := scratch(8), DefaultTuning(8)
					sc.Sharing, tune.Blocks, tune.PushBlocks = sharing, MaxBlocks, MaxBlocks
					l, err := Plan(Call{Op: op, DType: dtype.BF16, N: 8, Symmetric: true, Algo: algo, Blocks: blocks, Segs: []Seg{{Bytes: bytes}}}, sc, tune)
					if err != nil {
						continue // does not serve it
					}
					if l.Grid*sharing > sharedBlocks {
						t.Errorf("%v by %v of %d bytes: %d ranks with %d blocks", op, algo, bytes, sharing, l.Grid)
					}
					most = max(most, l.Grid*sharing)
				}
			}
		}
		if most <= sharedBlocks-sharing {
			t.Errorf("%d ranks: %d blocks at most", sharing, most)
		}
	}
}

func TestRecord(t *testing.T) {
	b := make([]byte, 64)
	if _, ok := ParseRecord(b); ok {
		t.Error("an empty record counts")
	}
	for i, v := range []byte{2, 1, 3, 4, 5, 6, 7, 8, 9, 0, 10, 1} {
		b[4*i] = v
	}
	r, ok := ParseRecord(b)
	want := Record{State: 2, Code: 1, Seq: 3, Op: 4, Rank: 5, Peer: 6, Block: 7, Want: 8, Seen: 9, ElapsedNanos: 10 + 1<<32}
	if !ok || r != want {
		t.Errorf("got %+v", r)
	}
	if s := fmt.Sprint(AllReduce, Avg, Push, Collective(99), Reduction(99), Algo(99)); s != "all_reduce avg push collective(99) reduction(99) algo(99)" {
		t.Error(s)
	}
}
