package kernels

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// enumerators reads the constants of a source's enums: the numbers that are written out.
func enumerators(t *testing.T, name string) map[string]uint64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("src", name))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, enum := range regexp.MustCompile(`(?s)enum \{(.*?)\}`).FindAllStringSubmatch(string(b), -1) {
		for line := range strings.Lines(enum[1]) {
			line, _, _ = strings.Cut(line, "//")
			for _, m := range regexp.MustCompile(`(\w+) = (0x[0-9a-f]+|\d+)(u?)( << (\d+))?\b`).FindAllStringSubmatch(line, -1) {
				v, err := strconv.ParseUint(m[2], 0, 64)
				if err != nil {
					t.Fatal(err)
				}
				if m[5] != "" {
					s, _ := strconv.Atoi(m[5])
					v <<= s
				}
				all[m[1]] = v
			}
		}
	}
	return all
}

// TestSourceNumbers compares the numbers that host and device both know.
func TestSourceNumbers(t *testing.T) {
	for name, want := range map[string]map[string]uint64{
		"prelude.h": {
			"MAXRANKS": MaxRanks, "MAXSEGS": MaxSegs, "MAXBLOCKS": MaxBlocks, "CTL_ABORT": CtlAbort, "CTL_LEFT": CtlLeft,
			"CTL_RECORD": CtlRecord, "CTL_ENTRY": CtlEntry, "CTL_EPOCH": CtlEpoch, "CTL_LEPOCH": CtlDirect, "CTL_EXIT": CtlExit,
			"CTL_CHUNKS": CtlChunks, "CTL_PUSHED": CtlPushed, "CTL_CREDIT": CtlCredit, "CTL_FLAGGED": CtlFlagged, "CTL_CHANNEL": CtlChannel,
			"CTL_CAME": CtlGatherEntry, "CTL_GATHERED": CtlGathered, "CTL_SENT": CtlSent, "CTL_TICKET": CtlTicket, "CTL_SENDERS": CtlSenders, "CTL_GATHERS": CtlGathers,
			"F64": uint64(dtype.F64), "F32": uint64(dtype.F32), "F16": uint64(dtype.F16), "BF16": uint64(dtype.BF16),
			"I64": uint64(dtype.I64), "I32": uint64(dtype.I32), "I8": uint64(dtype.I8), "U8": uint64(dtype.U8),
			"SUM": uint64(Sum), "AVG": uint64(Avg), "PROD": uint64(Prod), "MIN": uint64(Min), "MAX": uint64(Max),
		},
		"poison.h":              {"POISON": Poison},
		"flagged.h":             {"WIPES": FirstResetEpoch},
		"direct.h":              {"REFRESH": Refresh},
		"uneven.h":              {"DEPTH": AllToAllVDepth},
		"allreduce_push.cu":     {"CHUNK": PushUnits, "WINDOW": PushWindow},
		"reducescatter_push.cu": {"CHUNK": ScatterUnits, "DEPTH": ScatterDepth, "FEW": ScatterFew},
	} {
		got := enumerators(t, name)
		for k, v := range want {
			if g, ok := got[k]; !ok || g != v {
				t.Errorf("%s: %s is %d, %v, here %d", name, k, g, ok, v)
			}
		}
	}
}

// span is what one purpose takes of a rank's memory.
type span struct {
	lo, hi uint64
	what   string
}

// apart reports spans that overlap or are outside of [0, end).
func apart(spans []span, end uint64) error {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	last := span{}
	for _, s := range spans {
		switch {
		case s.hi < s.lo || s.hi > end:
			return fmt.Errorf("%s takes [%d, %d) of %d bytes", s.what, s.lo, s.hi, end)
		case s.lo < last.hi:
			return fmt.Errorf("%s takes [%d, %d), %s [%d, %d)", last.what, last.lo, last.hi, s.what, s.lo, s.hi)
		}
		last = s
	}
	return nil
}

// TestControlPage makes sure that no two counters share a word.
func TestControlPage(t *testing.T) {
	const rows = 4 * MaxBlocks * MaxRanks
	var spans []span
	for _, s := range []struct {
		what      string
		at, bytes uint64
	}{
		{"abort", CtlAbort, 4}, {"left", CtlLeft, 4}, {"record", CtlRecord, 48}, {"entries", CtlEntry, 4 * MaxRanks},
		{"entries of matmuls", CtlGatherEntry, 4 * MaxRanks}, {"gathered", CtlGathered, 4 * MaxRanks}, {"sent", CtlSent, 4 * MaxRanks},
		{"ticket", CtlTicket, 4}, {"senders", CtlSenders, 4}, {"matmuls that gather", CtlGathers, 4 * MaxBlocks},
		{"epochs", CtlEpoch, 4 * MaxBlocks}, {"direct calls", CtlDirect, 4 * MaxBlocks}, {"chunks", CtlChunks, 4 * MaxBlocks},
		{"exits", CtlExit, rows}, {"channels", CtlChannel, 64 * 128}, {"flags of streams", CtlStreamFlags, 16 * 4 * MaxRanks},
		{"epochs of packets with flags", CtlFlagged, 4 * MaxBlocks}, {"pushed", CtlPushed, rows}, {"credits", CtlCredit, rows},
	} {
		spans = append(spans, span{s.at, s.at + s.bytes, s.what})
	}
	if err := apart(spans, CtlBytes); err != nil {
		t.Error(err)
	}
	if err := apart([]span{{0, 8, "a"}, {4, 12, "b"}}, 12); err == nil {
		t.Error("an overlap was not seen")
	}
}

// scratches are layouts as groups of n have them, from the smallest there is.
func scratches(n int) (all []Scratch) {
	staged := uint64(2 * n * 4096)
	for _, s := range []struct{ region, flagged, staging uint64 }{
		{32 << 20, 8 << 20, 128 << 20}, {4096, 4096, staged}, {4096 * 3, 4096 * 5, uint64(n) * pushStaging}, {8192, uint64(n) * 4096, uint64(n)*pushStaging - 4096},
		{1 << 20, 4096 * 17, uint64(n)*pushStaging*3 + 4096}, {4096 * 255, 1 << 20, 0}, {16 << 20, 1 << 30, 1 << 30},
	} {
		sc := Scratch{Poisoned: CtlBytes, Region: s.region, FlaggedHalf: s.flagged}
		sc.Flagged = sc.Poisoned + 4*sc.Region
		sc.Staging, sc.StagingSize = sc.Flagged+2*sc.FlaggedHalf, s.staging
		all = append(all, sc)
	}
	return all
}

// area gives what of a rank's memory an algorithm may use.
func (sc Scratch) area(a Algo) span {
	switch a {
	case OneShot, TwoShot:
		return span{sc.Poisoned, sc.Poisoned + 4*sc.Region, "packets"}
	case LL:
		return span{sc.Flagged, sc.Flagged + 2*sc.FlaggedHalf, "packets with flags"}
	case Push:
		return span{sc.Staging, sc.Staging + sc.StagingSize, "staging"}
	}
	return span{}
}

// spans are the places that a launch's peers write at on a rank, as the sources compute
// them: packets of every source in forward and backward, or chunks of every block and source.
func (l *Launch) spans(op Collective) (spans []span) {
	a := &l.Args
	add := func(at, bytes uint64, format string, v ...any) {
		spans = append(spans, span{at, at + bytes, fmt.Sprintf(format, v...)})
	}
	if l.Algo == Push {
		chunk, depth := uint64(PushUnits*16), uint64(PushDepth)
		if op == ReduceScatter {
			chunk, depth = ScatterUnits*16, ScatterDepth
		}
		for slot := range depth {
			for src := range uint64(a.N) {
				for b := range uint64(l.Grid) {
					add(a.Scratch+((slot*uint64(a.N)+src)*uint64(l.Grid)+b)*chunk, chunk, "slot %d of block %d from %d", slot, b, src)
				}
			}
		}
		return spans
	}
	units := uint64(a.Units)
	if l.Algo == TwoShot {
		units = uint64(a.Per)
	}
	for half := range uint64(2) {
		for src := range uint64(a.N) {
			at := a.Scratch + half*a.Half + src*a.Slot
			add(at, 16*units, "half %d from %d", half, src)
			if l.Algo == TwoShot {
				add(at+a.Region, 16*units, "second hop, half %d from %d", half, src)
			}
		}
	}
	return spans
}

// TestLayout makes sure, for plans of all groups, layouts and many sizes, that what the
// kernels write is in the part of the scratch that is theirs, and that no two places of
// it overlap.
func TestLayout(t *testing.T) {
	plans := map[Algo]int{}
	for n := 2; n <= MaxRanks; n++ {
		for _, sc := range scratches(n) {
			for bytes := uint64(2); bytes < 1<<29; bytes = bytes*7/4 + 2 {
				for _, op := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
					for _, algo := range []Algo{Auto, OneShot, TwoShot, LL, Push} {
						segs := []Seg{{Src: 16, Dst: 16, Bytes: bytes &^ 1}}
						if plans[algo]%3 == 1 { // units are padded
							segs = append(segs, Seg{Src: 2, Dst: 2, Bytes: 2}, Seg{Src: 32, Dst: 32, Bytes: 34})
						}
						c := Call{Op: op, DType: dtype.BF16, N: n, Algo: algo, Blocks: []int{0, 1, 7, MaxBlocks}[bytes%4], Symmetric: bytes%3 > 0, Segs: segs}
						l, err := Plan(c, sc, DefaultTuning(n))
						if err != nil || l.Algo == Direct {
							continue
						}
						plans[l.Algo]++
						spans, area := l.spans(op), sc.area(l.Algo)
						for _, s := range spans {
							if s.lo < area.lo {
								t.Fatalf("%v: %s begins at %d", area, s.what, s.lo)
							}
						}
						if err := apart(spans, area.hi); err != nil {
							t.Fatalf("%v by %v on %d, %d bytes, %+v: %v", op, l.Algo, n, bytes, sc, err)
						}
					}
				}
			}
		}
	}
	for _, algo := range []Algo{OneShot, TwoShot, LL, Push} {
		if plans[algo] < 300 {
			t.Errorf("%d plans by %v", plans[algo], algo)
		}
	}
}

// TestUnevenLayout does the same for the uneven all_to_all, whose slots hold packets, or
// chunks of every block, and counts of chunks in any case.
func TestUnevenLayout(t *testing.T) {
	chunked := 0
	for n := 2; n <= MaxRanks; n++ {
		for pages := uint64(1); pages < 1<<19; pages = pages*5/4 + 1 {
			sc := Scratch{Flagged: CtlBytes, FlaggedHalf: 4096 * pages, Sharing: int(pages) % 5}
			packets, per := sc.AllToAllV(n)
			var table Table
			table.Send[1], table.Src[1] = MaxAllToAllV(n, sc), 1<<20
			l, err := PlanAllToAllV(table, n, 0, sc)
			if err != nil {
				t.Fatal(err)
			}
			if sc.Sharing > 1 && l.Grid*sc.Sharing > sharedBlocks {
				t.Fatalf("%d ranks of a device with %d blocks each", sc.Sharing, l.Grid)
			}
			a := &l.Args
			if a.Region != packets || a.Per != per || a.Region%8 != 0 || a.Per%16 != 0 || a.Slot%16 != 0 || a.Slot*uint64(n) > a.Half || a.Scratch+2*a.Half > sc.area(LL).hi {
				t.Fatalf("%d ranks, halves of %d bytes: %+v", n, a.Half, a)
			}
			more := table
			more.Send[1]++
			if _, err := PlanAllToAllV(more, n, 0, sc); err == nil {
				t.Fatalf("%d bytes were planned", more.Send[1])
			}
			size := span{a.Slot - 16, a.Slot, "size"}
			slot, chunks := []span{{0, 2 * a.Region, "packets"}, size}, []span{size}
			if per > 0 {
				chunked++
				for b := range uint64(l.Grid) {
					counts := span{size.lo - (uint64(l.Grid)-b)*16, size.lo - (uint64(l.Grid)-b-1)*16, "counts"}
					slot, chunks = append(slot, counts), append(chunks, counts)
					for i := range uint64(AllToAllVDepth) {
						at := (b*AllToAllVDepth + i) * uint64(per)
						chunks = append(chunks, span{at, at + uint64(per), fmt.Sprintf("place %d of block %d", i, b)})
					}
				}
				if last := uint64(a.Units-1)*uint64(l.Grid)*uint64(per) + 1; table.Send[1] < last || a.Units > 1<<30 {
					t.Fatalf("%d rounds for %d bytes", a.Units, table.Send[1])
				}
			}
			if err := cmp.Or(apart(slot, a.Slot), apart(chunks, a.Slot)); err != nil {
				t.Fatalf("%d ranks, halves of %d bytes: %v", n, a.Half, err)
			}
		}
	}
	if chunked < 500 {
		t.Errorf("%d layouts have chunks", chunked)
	}
}
