package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
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
			map[string]string{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "r1", "SLURM_PROCID": "7", "SLURM_NTASKS": "9"},
			Env{Rank: 3, World: 8, LocalRank: 1, LocalWorld: 2, Addr: "tcp:node0:29501", ID: "node0:29501/r1", Source: "torchrun"}, ""},
		{"own port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "1", EnvPort: "70"},
			Env{World: 2, Addr: "tcp:[::1]:70", ID: "[::1]:70", Source: "torchrun"}, ""},
		{"one rank needs no address", map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, Env{World: 1, Source: "torchrun"}, ""},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"},
			Env{Rank: 1, World: 2, LocalRank: 1, Addr: "tcp:a:6", ID: "a:6", Source: "Open MPI"}, ""},
		{"Slurm", map[string]string{"RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "12", EnvListen: ":7", EnvSecretFile: "f", "MASTER_ADDR": "a", EnvPort: "5"},
			Env{Rank: 1, World: 2, Addr: "tcp:a:5", Listen: "tcp::7", ID: "a:5/12", SecretFile: "f", Source: "Slurm"}, ""},
		{"no address", map[string]string{"RANK": "0", "WORLD_SIZE": "2"}, Env{}, "MASTER_ADDR"},
		{"no port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, Env{}, "MASTER_PORT"},
		{"last port", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65535"}, Env{}, "MASTER_PORT"},
		{"malformed", map[string]string{"RANK": "first", "WORLD_SIZE": "2"}, Env{}, `RANK="first"`},
		{"short secret", map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", EnvPort: "5", EnvSecret: "hush"}, Env{}, EnvSecret + ": a job's secret has 16"},
		{"token", map[string]string{"RANK": "0", "WORLD_SIZE": "2", EnvJob: "id short tcp:a:5"}, Env{}, EnvJob},
		{"outside", map[string]string{"RANK": "2", "WORLD_SIZE": "2"}, Env{Rank: 2}, "rank 2 of a world of 2"},
		{"no size", map[string]string{"RANK": "1", "OMPI_COMM_WORLD_RANK": "1"}, Env{}, "RANK=1 is set, but not WORLD_SIZE"},
	} {
		got, err := EnvFrom(func(k string) string { return c.env[k] })
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
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
		job := rendezvous.NewLocal()
		for r := range c.env.World {
			if r != c.env.Rank {
				go rendezvous.Join(t.Context(), job, rendezvous.Place{Name: "world", Rank: r, World: c.env.World})
			}
		}
		_, err := Join(t.Context(), func(_ context.Context, s Spec) (Device, error) { got = s; return nil, seen }, Config{Env: &c.env, Job: job})
		if !errors.Is(err, seen) || got.LocalRank != c.want || got.Rank != c.env.Rank || got.Job.Rank() != got.Rank {
			t.Errorf("%+v: %d, %v", c.env, got.LocalRank, err)
		}
	}
}

// TestJobSecret: the job's secret is the environment's, that of a file which is the user's
// alone, or for jobs of one machine the user's own; it is never shown.
func TestJobSecret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("0123456789abcdef0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, err := rendezvous.SecretOf("given-0123456789")
	if err != nil {
		t.Fatal(err)
	}
	own, err := Env{Addr: "tcp:127.0.0.1:5"}.Job()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  Env
		want string
	}{
		{Env{Addr: "tcp:localhost:5"}, own.Secret.Reveal()},
		{Env{Addr: "unix:@x"}, own.Secret.Reveal()},
		{Env{Addr: "tcp:node0:5", SecretFile: file}, "0123456789abcdef0"},
		{Env{Addr: "tcp:node0:5", SecretFile: file, Secret: given}, "given-0123456789"},
		{Env{Addr: "tcp:node0:5"}, ""},
		{Env{Addr: "tcp:127.0.0.1:5", Listen: "tcp::5"}, ""},
		{Env{Addr: "tcp:node0:5", SecretFile: dir}, ""},
		{Env{}, ""},
	} {
		j, err := c.env.Job()
		if (err == nil) != (c.want != "") || err == nil && j.Secret.Reveal() != c.want {
			t.Errorf("%+v: %v", c.env, err)
		}
		if s := fmt.Sprintf("%v %+v %#v %v", c.env, j, j, err); c.want != "" && strings.Contains(s, c.want) {
			t.Errorf("the secret shows: %s", s)
		}
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := (Env{Addr: "tcp:node0:5", SecretFile: file}).Job(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}

// TestOnHosts: there are as many hosts as were declared, of neighbours, and of nearly equal size.
func TestOnHosts(t *testing.T) {
	for world := 1; world <= 9; world++ {
		for hosts := 1; hosts <= world; hosts++ {
			last, seen := Env{Host: "none"}, 0
			for rank := range world {
				e := OnHosts(rank, world, hosts)
				if e.Host != last.Host {
					if seen++; e.LocalRank != 0 || seen > 1 && last.LocalRank != last.LocalWorld-1 {
						t.Errorf("%d on %d: %+v follows %+v", world, hosts, e, last)
					}
				} else if e.LocalRank != last.LocalRank+1 || e.LocalWorld != last.LocalWorld {
					t.Errorf("%d on %d: %+v follows %+v", world, hosts, e, last)
				}
				if e.LocalWorld != world/hosts && e.LocalWorld != (world+hosts-1)/hosts || e.Rank != rank || e.World != world {
					t.Errorf("%d on %d: %+v", world, hosts, e)
				}
				last = e
			}
			if seen != hosts || last.LocalRank != last.LocalWorld-1 {
				t.Errorf("%d on %d: %d hosts", world, hosts, seen)
			}
		}
	}
}
