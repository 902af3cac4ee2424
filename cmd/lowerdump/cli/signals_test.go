package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// stuckTable has a pass that says that it has begun and never ends, nor looks whether it
// should, and one that fails.
func stuckTable() *passes.Table {
	table, err := standard.Table().Extend([]passes.Pass{{
		Name: "stuck", Doc: "Never ends.",
		Run: func(*passes.Context, *ir.Func) error {
			os.Stdout.WriteString("begun\n")
			for ever := make(chan bool); ; {
				<-ever
			}
		},
	}, {
		Name: "bad", Doc: "Fails.",
		Run: func(*passes.Context, *ir.Func) error { return errors.New("out of luck") },
	}}, nil, nil)
	if err != nil {
		panic(err)
	}
	return table
}

// Signals end every command, whatever it is doing, with a status and a message that say so.
func TestSignals(t *testing.T) {
	input := filepath.Join(t.TempDir(), "a.ir")
	if err := os.WriteFile(input, []byte("world 2\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stuck, err := exec.LookPath("stuck")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"opt"}, {"lower"}, {"stats"}, {"run"}, {"export"}, {"dot"}, {"trace"}, {"report"}, {"plan"}, {"check"}, {"calibrate", "-fake-gpus=2", "-o=costs.json"}} {
		command := args[0]
		for sig, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			cmd := exec.Command(stuck, append(args[:len(args):len(args)], "-passes=stuck", input)...)
			cmd.Dir = filepath.Dir(input)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "begun\n" {
				t.Fatalf("%s: %q, %v: %s", command, line, err, &stderr)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != status {
				t.Errorf("%s, %v: %v, want status %d", command, sig, err, status)
			}
			want := "lowerdump " + command + ": ended by SIGINT\n"
			if sig == syscall.SIGTERM {
				want = "lowerdump " + command + ": ended by SIGTERM\n"
			}
			if got := stderr.String(); got != want {
				t.Errorf("%s, %v: said %q, want %q", command, sig, got, want)
			}
		}
	}
}
