package gomlx

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/compute"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/launch"
)

func TestMain(m *testing.M) {
	if os.Getenv(launch.EnvChild) != "" {
		if err := process(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// dies is the step before which rank 2 is killed.
const dies = 4

// process is one of four that train together, of which one dies.
func process() error {
	config := "launch=env,devices=4"
	made, err := New(config)
	if err != nil {
		return err
	}
	b := made.(*Backend)
	defer b.Finalize()
	h := harness{panics{}, b}
	e := h.step(compute.Mesh{Name: "mesh", AxesSizes: []int{2, 2}, AxesNames: []string{"data", "model"}}, true)
	in := make([]compute.Buffer, 8)
	for d := range 4 {
		m := float32(d % 2)
		in[2*d] = h.buffer(d, []float32{1 + 2*m, 2 + 2*m, 5 + 2*m, 6 + 2*m}, 2, 2)
		in[2*d+1] = h.buffer(d, []float32{1, 0, 2, 1}, 2, 2)
	}
	for step := 0; ; step++ {
		begun := time.Now()
		outs, err := e.Execute(in, []bool{true, false, true, false, true, false, true, false}, 0)
		if took := time.Since(begun); err != nil {
			var lost *rt.PeerLostError
			if !errors.As(err, &lost) || lost.Peer != 2 || step < dies-1 { // who is behind may hear of it within the step that the dead one has ended
				return fmt.Errorf("step %d ends with %T: %w", step, err, err)
			}
			fmt.Printf("lost %d after %t\n", lost.Peer, took < time.Minute) // the deadline of waits is five
			return nil
		}
		for d := range 4 {
			in[2*d] = outs[2*d]
			sum := make([]float32, 1)
			h.check(outs[2*d+1].ToFlatData(sum))
			if step == 0 {
				fmt.Printf("sum %v\n", sum)
			}
		}
		if step == dies-2 { // every process gets every piece
			for d := range 4 {
				piece := make([]float32, 4)
				h.check(in[2*d].ToFlatData(piece))
				fmt.Printf("piece %d %v\n", d, piece)
			}
		}
		if step == dies-1 && b.place.Rank == 2 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// panics is a test in a process that is none.
type panics struct{ testing.TB }

func (panics) Helper()        {}
func (panics) Fatal(a ...any) { panic(fmt.Sprint(a...)) }

// Processes train together, fetch pieces from each other, and hear within a second that one
// was killed.
func TestKilledProcess(t *testing.T) {
	var mu sync.Mutex
	said := map[string]int{}
	out := writer(func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(string(p)) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "] ")
			said[text]++
		}
	})
	err := launch.Run(t.Context(), launch.Spec{World: 4, Stdout: out})
	var all *launch.Error
	if !errors.As(err, &all) || len(all.Ranks) != 1 || all.First != 2 {
		t.Fatalf("the ranks end with %v", err)
	}
	want := map[string]int{"sum [112]": 16, "lost 2 after true": 3, "piece 2 [-19.625 -28.25 -4.625 -7.75]": 4, "piece 3 [-36.875 -45.5 -10.875 -14]": 4}
	mu.Lock()
	defer mu.Unlock()
	for text, n := range want {
		if said[text] != n {
			t.Errorf("%q is said %d times, want %d; said is %v", text, said[text], n, said)
		}
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
