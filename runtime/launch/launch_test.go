package launch_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// The test binary is also what the ranks, and a launcher of its own, run.
func TestMain(m *testing.M) {
	if os.Getenv(launch.EnvChild) == "1" {
		os.Exit(child(os.Args[1]))
	}
	if len(os.Args) > 1 && os.Args[1] == "launcher" {
		if err := launch.Run(context.Background(), launch.Spec{World: 2, Args: []string{"sleep"}, Stdout: os.Stdout}); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// envGate is where rank 1 of "exit" waits.
const envGate = "LAUNCH_GATE"

func child(what string) int {
	e, err := rt.EnvFrom(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	switch what {
	case "place":
		fmt.Printf("rank %d of %d, local %d of %d, %s%s\nno newline", e.Rank, e.World, e.LocalRank, e.LocalWorld, e.Source, e.Host)
	case "exit":
		fmt.Fprintf(os.Stderr, "rank %d is unhappy\n", e.Rank)
		if e.Rank == 1 { // ends when rank 0 has
			c, err := net.Dial("unix", os.Getenv(envGate))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 9
			}
			io.Copy(io.Discard, c)
			return 7
		}
		if e.Rank == 2 {
			time.Sleep(time.Hour)
		}
	case "rendezvous":
		job, err := e.Job()
		if err == nil {
			var g *rendezvous.Group
			if g, err = rendezvous.Join(context.Background(), job, rendezvous.Place{Name: "w", Rank: e.Rank, World: e.World, Timeout: time.Minute}); err == nil {
				err = errors.Join(g.Barrier(context.Background(), "all"), g.Close())
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 9
		}
	case "sleep":
		fmt.Println("pid", os.Getpid())
		time.Sleep(time.Hour)
	}
	return 0
}

// BenchmarkProcesses starts processes that do nothing but a rendezvous, and waits for them.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if err := launch.Run(b.Context(), launch.Spec{World: n, Args: []string{"rendezvous"}}); err != nil {
					b.Fatal(launch.ErrorOf(err, err.(*launch.Error).First))
				}
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	for hosts, places := range map[int][]string{
		0: {"local 0 of 3, torchrun", "local 1 of 3, torchrun", "local 2 of 3, torchrun"},
		2: {"local 0 of 2, torchrunhost0", "local 1 of 2, torchrunhost0", "local 0 of 1, torchrunhost1"},
	} {
		var out bytes.Buffer
		if err := launch.Run(t.Context(), launch.Spec{World: 3, Hosts: hosts, Args: []string{"place"}, Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		var want []string
		for r, place := range places {
			want = append(want, fmt.Sprintf("[%d] rank %d of 3, %s", r, r, place), fmt.Sprintf("[%d] no newline", r))
		}
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d hosts: got %q\nwant %q", hosts, got, want)
		}
	}
}

// TestExits has one rank fail and one never end: the latter is killed after the
// grace period.
func TestExits(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "gate"))
	if err != nil {
		t.Fatal(err)
	}
	err = launch.Run(t.Context(), launch.Spec{World: 3, Args: []string{"exit"}, Grace: 100 * time.Millisecond, Env: []string{envGate + "=" + ln.Addr().String()},
		Ended: func(rank int, err error) {
			if rank == 0 {
				if c, err := ln.Accept(); err != nil {
					t.Error(err)
				} else {
					c.Close()
				}
				ln.Close()
			}
		}})
	var e *launch.Error
	if !errors.As(err, &e) || len(e.Ranks) != 2 || e.First != 1 {
		t.Fatalf("got %v", err)
	}
	var exit *exec.ExitError
	if one := launch.ErrorOf(err, 1); !errors.As(one, &exit) || exit.ExitCode() != 7 || one.Stderr != "rank 1 is unhappy\n" {
		t.Errorf("rank 1: %v", one)
	}
	if two := launch.ErrorOf(err, 2); two == nil || !strings.Contains(two.Error(), "killed") {
		t.Errorf("rank 2: %v", two)
	}
	if launch.ErrorOf(err, 0) != nil {
		t.Errorf("rank 0: %v", launch.ErrorOf(err, 0))
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := launch.Run(ctx, launch.Spec{World: 2, Args: []string{"sleep"}}); err == nil {
		t.Error("the children sleep for an hour, and ended well")
	}
}

func TestCannotStart(t *testing.T) {
	if err := launch.Run(t.Context(), launch.Spec{World: 2, Path: "/nonexistent/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := launch.Run(t.Context(), launch.Spec{}); err == nil {
		t.Error("a world of none was launched")
	}
}

// TestChildrenDieWithParent kills a launcher, which then cannot clean up.
func TestChildrenDieWithParent(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("needs Linux")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "launcher")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	lines := bufio.NewScanner(out)
	for len(pids) < 2 && lines.Scan() {
		_, pid, ok := strings.Cut(lines.Text(), "pid ")
		n, err := strconv.Atoi(pid)
		if !ok || err != nil {
			t.Fatalf("launcher says %q", lines.Text())
		}
		pids = append(pids, n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(pids) != 2 {
		t.Fatalf("processes %v", pids)
	}
	for _, pid := range pids {
		for i := 0; alive(pid); i++ {
			if i == 2000 {
				t.Fatalf("process %d outlives its launcher", pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// alive reports whether the process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
