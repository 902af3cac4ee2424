package cli

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-ee968945/concert/internal/cases"
)

var processes = cases.Flag("processes", 40, 100, "how many processes have to write the same bytes")

// Processes with one thread or many write the same bytes: schedules, programs and emitted
// code.
func TestSameBytesInProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	graph := func(name string) string { return "../../../testdata/graphs/" + name + ".graph.json.gz" }
	for _, c := range []struct {
		part int // of a hundred
		args []string
	}{
		{60, []string{"export", "-passes=order-only", graph("mixtral_l2_ep4_fsdp4.bw")}},
		{20, []string{"opt", "-passes=default", graph("llama8b_l4_tpsp4.bw")}},
		{10, []string{"lower", graph("tiny_moe2.bw")}},
		{10, []string{"lower", "-emit=go", graph("tiny_fsdp2.bw")}},
	} {
		var want string
		for i := range int(processes()) * c.part / 100 {
			cmd := exec.Command("lowerdump", c.args...) // of TestMain
			cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", 1+i%4), fmt.Sprintf("GOGC=%d", 50+50*(i%3)))
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %v", c.args, err)
			}
			got := fmt.Sprintf("%x", sha256.Sum256(out))
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("%v: run %d differs", c.args, i)
			}
		}
	}
}
