package gomlx

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/support/backendtest"
)

var devices = []string{"host", "fake"}

func init() {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		devices = append(devices, "cuda")
	}
}

// GoMLX's own tests of a backend, on the host device and by generated kernels.
func TestBackend(t *testing.T) {
	for _, device := range devices {
		t.Run("device="+device, func(t *testing.T) {
			b, err := New("device=" + device)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Finalize()
			backendtest.RunAll(t, b, nil)
		})
	}
}

// What TestBackend skips is what testdata/skips.txt lists.
func TestSkips(t *testing.T) {
	text, err := os.ReadFile("testdata/skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "#" {
			want = append(want, f[0])
		}
	}
	out, err := exec.Command(os.Args[0], "-test.run=^TestBackend$", "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, device := range devices {
		var got []string
		for _, m := range regexp.MustCompile(`--- SKIP: TestBackend/device=`+device+`/(\S+)`).FindAllSubmatch(out, -1) {
			got = append(got, string(m[1]))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("device=%s skips %q, the list has %q", device, got, want)
		}
	}
}

// What is not there is said as GoMLX expects it, before anything runs.
func TestNotImplemented(t *testing.T) {
	b, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Finalize()
	f := b.Builder("test").Main()
	x, err := f.Constant([]bool{true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.While(nil, nil, x); !errors.Is(err, compute.ErrNotImplemented) || !strings.Contains(err.Error(), "While") {
		t.Errorf("While: %v", err)
	}
	if _, err := New("device=tpu"); err == nil {
		t.Error("a device that there is not was taken")
	}
}
