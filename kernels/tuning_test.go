package kernels

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/cost/calibration"
)

func TestCalibration(t *testing.T) {
	a := DefaultTuning(4)
	a.OneShot, a.Blocks = 12345, 96
	f := &calibration.File{Machine: "two of them", Protocols: []calibration.Protocols{{Ranks: 4, Limits: a}, {Ranks: 2, Limits: DefaultTuning(2)}, {Ranks: 16, Limits: DefaultTuning(16)}}}
	c, err := CalibrationOf(f)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := f.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	read := func(text string) (again *Calibration, err error) {
		_, err = calibration.Read("f", strings.NewReader(text), func(f *calibration.File) (err error) {
			again, err = CalibrationOf(f)
			return err
		})
		return again, err
	}
	again, err := read(text.String())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, again); d != "" {
		t.Error(d)
	}
	if c.Digest() != again.Digest() || c.Digest() == (*Calibration)(nil).Digest() {
		t.Errorf("digests %s, %s, of the defaults %s", c.Digest(), again.Digest(), (*Calibration)(nil).Digest())
	}
	if (&Calibration{Groups: map[int]Tuning{2: DefaultTuning(2)}}).Digest() != (*Calibration)(nil).Digest() {
		t.Error("a calibration equal to the defaults has another digest")
	}
	if got := again.For(3); got != DefaultTuning(3) {
		t.Errorf("a group that was not measured gets %+v", got)
	}
	for _, w := range []struct{ name, from, to, want string }{
		{"no blocks", `"blocks":96`, `"blocks":0`, "f:6:"},
		{"no blocks", `"blocks":96`, `"blocks":0`, "protocols.1.limits.blocks: 0 is not in [1, "},
		{"ranks", `"ranks":16`, `"ranks":17`, "protocols.2.ranks: 17 is not in [2, 16]"},
		{"missing", `"push":`, `"shove":`, `there is no field "shove"`},
		{"changed", "12345", "12346", "digest"},
	} {
		if _, err := read(strings.Replace(text.String(), w.from, w.to, 1)); err == nil || !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s: %v, want %s", w.name, err, w.want)
		}
	}
}
