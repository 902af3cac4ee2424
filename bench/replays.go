package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// replayed is what the replays of one half left on one rank.
type replayed struct {
	Digests []string `json:"digests"` // of each output, after the first replay
	Differ  []int    `json:"differ"`  // by output: replays that left other bits
}

// replays replays a step and compares the bits of the outputs with those of the first replay.
// It holds one copy of the outputs in host memory: fresh memory for each download, and a hash that
// others can compare, would take longer than the replay and the transfer.
func replays(ctx context.Context, r *rt.Rank, s *rt.Step, again []rt.Value, n int) (*replayed, error) {
	out := new(replayed)
	var (
		data [][]byte // by output
		sums []uint64 // of the first replay
		seed = maphash.MakeSeed()
	)
	for k := range n {
		vs, err := s.Run(ctx, again)
		if err != nil {
			return nil, fmt.Errorf("replay %d: %w", k, err)
		}
		if k == 0 {
			out.Digests, out.Differ = make([]string, len(vs)), make([]int, len(vs))
			data, sums = make([][]byte, len(vs)), make([]uint64, len(vs))
		}
		var hashing sync.WaitGroup
		for i, v := range vs {
			if !v.Place.DType.Valid() {
				continue // in flight
			}
			if data[i] == nil {
				data[i] = make([]byte, v.Place.Bytes())
			}
			if err = r.Device().Download(data[i], v.Place); err != nil {
				break
			}
			hashing.Go(func() {
				switch sum := maphash.Bytes(seed, data[i]); {
				case k == 0:
					sha := sha256.Sum256(data[i])
					sums[i], out.Digests[i] = sum, hex.EncodeToString(sha[:])
				case sum != sums[i]:
					out.Differ[i]++
				}
			})
		}
		hashing.Wait()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reportReplays reports whether every replay left the same bits on every rank, how many
// outputs are the same on all ranks that have them, and whether those are that should be: which the
// peer has the same on all of them.
func (j *Job) reportReplays(t *Console, found []*outcome) error {
	bad := false
	fail := func(format string, args ...any) {
		bad = true
		fmt.Fprintf(t.Out, "%s: %s\n", t.Colour("31", "FAIL"), fmt.Sprintf(format, args...))
	}
	for _, h := range j.functions() {
		slots := interp.OutputSlots(h.f)
		want, err := j.replicated(h.at, h.f)
		if err != nil {
			return err
		}
		first := &found[h.ranks[0]].notes.Replayed[h.at]
		equal, total, due, bits := 0, len(first.Digests), 0, "the same bits in each"
		for k := range total {
			same := true
			for _, r := range h.ranks {
				rep := &found[r].notes.Replayed[h.at]
				if n := rep.Differ[k]; n > 0 {
					bits = "not the same bits in each"
					fail("rank %d %s output %d, %%%s: %d of %s left other bits than the first", r, h.name, k, slots[k].Name, n, count(j.Replays, "replay"))
				}
				same = same && rep.Digests[k] == first.Digests[k]
			}
			if same {
				equal++
			}
			if want != nil && want[k] {
				if due++; !same {
					fail("%s output %d, %%%s: the ranks have different bits, and should have the same", h.name, k, slots[k].Name)
				}
			}
		}
		fmt.Fprintf(t.Out, "%s.%s: %s, %s; %d of %s equal on all ranks", j.pair.Name, h.name, count(j.Replays, "replay"), bits, equal, count(total, "output"))
		if want != nil {
			fmt.Fprintf(t.Out, ", %d should be", due)
		}
		fmt.Fprintln(t.Out)
	}
	if bad {
		return ErrFindings
	}
	return nil
}

// replicated reports, for each output of half i, whether what is expected of it is
// the same on all ranks, bit for bit; nil if nothing was recorded to tell by.
func (j *Job) replicated(i int, f *ir.Func) ([]bool, error) {
	out := make([]bool, len(interp.OutputSlots(f)))
	switch {
	case j.Expect == "" || j.Expect == "interp":
		return nil, nil
	case j.prints != nil:
		places, err := tracedPlaces(f)
		if err != nil {
			return nil, err
		}
		for k := range out {
			out[k] = len(places[k]) > 0
			for r := 1; r < len(j.prints) && out[k]; r++ {
				key := fingerprint.Key{Func: j.pair.Name + "." + halfNames[i], Output: places[k][0]}
				first, found := j.prints[0].Prints[key]
				if !found {
					return nil, nil
				}
				d, err := fingerprint.Compare(j.prints[r].Prints[key], first)
				out[k] = err == nil && d.Bitwise
			}
		}
		return out, nil
	}
	ranks := make([]int, len(out)) // that have what rank 0 has
	first, err := j.pair.ReadExpected(j.Expect, 0)
	if err != nil {
		return nil, err
	}
	for r := range j.pair.World() {
		es, err := j.pair.ReadExpected(j.Expect, r)
		if err != nil {
			return nil, err
		}
		for n, e := range es {
			if e.Backward == (i > 0) && n < len(first) && interp.Equal(e.Tensor, first[n].Tensor) {
				ranks[e.Output]++
			}
		}
	}
	for k := range out {
		out[k] = ranks[k] == j.pair.World()
	}
	return out, nil
}
