package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/runtime/store"
)

func TestEnvFrom(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want Env
		err  string
	}{
		{"nothing", nil, Env{World: 1, LocalWorld: 1, Source: "none: a world of one"}, ""},
		{"torchrun",
			map[string]string{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500", "SLURM_PROCID": "7", "SLURM_NTASKS": "9"},
			Env{Rank: 3, World: 8, LocalRank: 1, LocalWorld: 2, Addr: "node0:29501", Source: "torchrun"}, ""},
		{"own port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "1", EnvPort: "70"},
			Env{World: 2, Addr: "[::1]:70", Source: "torchrun"}, ""},
		{"one rank needs no address", map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, Env{World: 1, Source: "torchrun"}, ""},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"},
			Env{Rank: 1, World: 2, LocalRank: 1, Addr: "a:6", Source: "Open MPI"}, ""},
		{"Slurm", map[string]string{"RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "MASTER_ADDR": "a", EnvPort: "5"},
			Env{Rank: 1, World: 2, Addr: "a:5", Source: "Slurm"}, ""},
		{"no address", map[string]string{"RANK": "0", "WORLD_SIZE": "2"}, Env{}, "MASTER_ADDR"},
		{"no port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, Env{}, "MASTER_PORT"},
		{"last port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65535"}, Env{}, "MASTER_PORT"},
		{"malformed", map[string]string{"RANK": "first", "WORLD_SIZE": "2"}, Env{}, `RANK="first"`},
		{"outside", map[string]string{"RANK": "2", "WORLD_SIZE": "2"}, Env{}, "rank 2 of a world of 2"},
	} {
		got, err := EnvFrom(func(k string) string { return c.env[k] })
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, e := range []error{
		&TimeoutError{Op: `all_reduce on "tp"`, Rank: 1, Peer: 2, Missing: []int{2, 3}, Group: "tp", Elapsed: time.Second, Detail: "d"},
		&PeerLostError{Op: "x", Rank: 1, Peer: 2, Group: "g", Left: true},
		&DigestMismatchError{Op: "rendezvous", Rank: 1, Peer: 2, RankDigest: "a", PeerDigest: "b", Line: 3, RankLine: "x", PeerLine: "y"},
		&SizeMismatchError{Op: "x", What: "operand bytes", Rank: 1, Peer: 2, RankValue: "3", PeerVal: "4", Group: "g"},
		errors.New("anything"),
	} {
		got := DecodeError(EncodeError(&AbortedError{Rank: 1, Origin: 1, Err: e}, 1000))
		if !strings.Contains(got.Error(), e.Error()) {
			t.Errorf("%v became %v", e, got)
		}
		for _, kind := range []error{ErrTimeout, ErrPeerLost, ErrDigestMismatch, ErrSizeMismatch, context.DeadlineExceeded} {
			if errors.Is(e, kind) != errors.Is(got, kind) {
				t.Errorf("%v: is %v: %v and %v", e, kind, errors.Is(e, kind), errors.Is(got, kind))
			}
		}
	}
	if err := DecodeError(EncodeError(context.Canceled, 1000)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context became %v", err)
	}
	long := EncodeError(errors.New(strings.Repeat("\x00é", 5000)), 2048)
	if len(long) > 2048 || !strings.Contains(DecodeError(long).Error(), "é") {
		t.Errorf("a long text takes %d bytes: %v", len(long), DecodeError(long))
	}
	DecodeError([]byte("{")) // must not panic
}

func TestFirstDifference(t *testing.T) {
	for _, c := range []struct {
		a, b, la, lb string
		line         int
	}{
		{"x\ny\n", "x\ny\n", "", "", 0},
		{"x\ny\n", "x\nz\n", "y", "z", 2},
		{"x\n", "x\nz\n", "", "z", 2},
		{"", "a", "", "a", 1},
		{"p\narena 1\nbuffer a\nx\ny\n", "p\narena 2\nx\nz\n", "y", "z", 5}, // memory follows from the rest
		{"p\narena 1\nx\n", "p\narena 2\nx\n", "arena 1", "arena 2", 2},
		{"p\narena 1\n", "p\narena 2\nz\n", "", "z", 3},
	} {
		if line, la, lb := firstDifference(c.a, c.b); line != c.line || la != c.la || lb != c.lb {
			t.Errorf("%q %q: %d %q %q", c.a, c.b, line, la, lb)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		t      Tensor
		lo, hi int64
		ok     bool
	}{
		{C(8, F32, 2, 3), 8, 32, true},
		{C(8, F32), 8, 12, true},
		{C(8, F32, 0, 3), 8, 8, true},
		{S(8, BF16, Dims{2, 3}, Dims{1, 2}), 8, 20, true},
		{S(8, BF16, Dims{2, 3}, Dims{0, 5}), 8, 30, true},
		{S(80, BF16, Dims{2, 3}, Dims{-3, 1}), 74, 86, true},
		{C(0, F32, -1), 0, 0, false},
		{C(0, F32, 1<<40, 1<<40), 0, 0, false},
		{S(0, F32, Dims{2}, Dims{1 << 60}), 0, 0, false},
		{S(0, F32, Dims{2}, Dims{-1 << 63}), 0, 0, false},
		{S(0, F32, Dims{2}, Dims{}), 0, 0, false},
		{Tensor{Shape: Dims{1}}, 0, 0, false},
	} {
		lo, hi, err := c.t.Span()
		if lo != c.lo || hi != c.hi || (err == nil) != c.ok {
			t.Errorf("%v: %d %d %v", c.t, lo, hi, err)
		}
	}
}

func TestAttrs(t *testing.T) {
	got := A("dims", []int{0, 2}, "causal", true, "scalar", 1.0, "n", 3, "dtype", BF16, "s", "x").String()
	if want := `{causal=true, dims=[0, 2], dtype=bf16, n=3, s="x", scalar=1.0}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []Attrs{A("x"), A(1, 2), A("x", struct{}{})} {
		if !bad.Has(malformed) {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestGroupCheck(t *testing.T) {
	for text, g := range map[string]Group{
		"":              {Name: "g", Ranks: [][]int{{1, 0}, {2, 3}}},
		"subgroups of":  {Name: "g", Ranks: [][]int{{0, 1, 2}, {3}}},
		"rank 4":        {Name: "g", Ranks: [][]int{{0, 4}, {2, 3}}},
		"appears twice": {Name: "g", Ranks: [][]int{{0, 1}, {1, 3}}},
		"has 2 of":      {Name: "g", Ranks: [][]int{{0, 1}}},
	} {
		if err := g.Check(4); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", g, err, text)
		}
	}
}

// A device is opened with the rank's place on its host and the address of the job.
func TestSpecPlace(t *testing.T) {
	seen := errors.New("seen")
	for _, c := range []struct {
		env  Env
		want int
	}{
		{Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, Addr: "node0:7"}, 1},
		{Env{Rank: 2, World: 4, LocalWorld: 2, Addr: "node0:7"}, 0},
		{Env{Rank: 3, World: 4, Addr: "node0:7"}, 3}, // nothing was said: one host
	} {
		var got Spec
		_, err := Join(t.Context(), func(_ context.Context, s Spec) (Device, error) { got = s; return nil, seen }, Config{Env: &c.env, Store: store.NewMem()})
		if !errors.Is(err, seen) || got.LocalRank != c.want || got.Addr != c.env.Addr || got.Rank != c.env.Rank {
			t.Errorf("%+v: %d, %q, %v", c.env, got.LocalRank, got.Addr, err)
		}
	}
}
