package kernels

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCalibration(t *testing.T) {
	a := DefaultTuning(4)
	a.OneShot, a.Blocks = 12345, 96
	c := &Calibration{Machine: "two of them", Groups: map[int]Tuning{4: a, 2: DefaultTuning(2), 16: DefaultTuning(16)}}
	var text bytes.Buffer
	if _, err := c.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	again, err := ReadCalibration("f", bytes.NewReader(text.Bytes()))
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
		{"changed", "12345", "12346", "digest"},
		{"unknown field", `"push":`, `"shove":`, `"push" is missing`},
		{"no blocks", `"blocks": 96`, `"blocks": 0`, "blocks"},
		{"version", `"version": 1`, `"version": 7`, "version 7"},
		{"ranks", `"16": {`, `"17": {`, "17 ranks"},
		{"negative", "12345", "-1", "negative"},
		{"not JSON", "{", "", "f:"},
	} {
		if _, err := ReadCalibration("f", strings.NewReader(strings.Replace(text.String(), w.from, w.to, 1))); w.name == "negative" {
			var e *CalibrationError
			if !errors.As(err, &e) {
				t.Errorf("%s: %v", w.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), w.want) || !strings.HasPrefix(err.Error(), "f: ") {
			t.Errorf("%s: %v", w.name, err)
		}
	}
	free := text.String()[:strings.LastIndex(text.String(), `"digest"`)] + `"digest": ""}`
	if _, err := ReadCalibration("f", strings.NewReader(strings.Replace(free, "12345", "7", 1))); err != nil {
		t.Errorf("without a digest: %v", err)
	}
}
