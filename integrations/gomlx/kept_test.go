package gomlx

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/compute"

	"github.com/seed-ee968945/concert/program"
)

// A program that is kept computes what it did when it was compiled; another text, another
// configuration, and a file that is not whole, make one anew.
func TestKept(t *testing.T) {
	for _, device := range []string{"host", "fake"} {
		config := "device=" + device + ",cache=" + filepath.Join(t.TempDir(), "cache")
		var files []string
		made := 0
		maker, err := executableDigest()
		if err != nil {
			t.Fatal(err)
		}
		find := func(config, text string, want int) {
			t.Helper()
			h := newHarness(t, config)
			if made > 0 { // not again: it is large
				h.b.maker = func() ([]byte, error) { return maker, err }
			}
			e := h.step(compute.Mesh{}, false).(*spread)
			h.want(config+": the sum", h.run(e, nil, h.buffer(0, []float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4), h.buffer(0, []float32{1, 0, 2, 1, 0, 1, 1, 1}, 4, 2))[1], 118)
			p, err := h.b.keep(text, func() (*program.Program, error) { made++; return e.prog.prog, nil })
			h.check(err)
			if !bytes.Equal(p.AppendText(nil), e.prog.prog.AppendText(nil)) {
				t.Errorf("%s: %q gives another program", config, text)
			}
			if made != want {
				t.Errorf("%s: %q makes the %d. program, want %d", config, text, made, want)
			}
			files, err = filepath.Glob(filepath.Join(h.b.cache, "*"))
			h.check(err)
		}
		find(config+",mesh=fsdp:2", "a", 1)
		find(config+",mesh=fsdp:2", "a", 1)
		if device == "fake" {
			continue
		}
		find(config+",mesh=fsdp:2", "b", 2)
		find(config+",mesh=fsdp:2,memory=1GiB", "a", 3)
		if len(files) != 5 { // those of "a", "b" and a step, one and two again with a cap
			t.Errorf("%s: %d files", config, len(files))
		}
		for i, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				data = data[:len(data)-9]
			} else {
				data[len(data)-9] ^= 1
			}
			if err := os.WriteFile(f, data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		find(config+",mesh=fsdp:2", "a", 4)
		find(config+",mesh=fsdp:2", "a", 4)
	}
}
