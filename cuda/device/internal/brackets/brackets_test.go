package brackets

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/program"
)

// A case within a loop, whose branches have calls (0): where each of them begins and ends.
func TestFind(t *testing.T) {
	const call = program.Launch
	list := []program.Kind{call, program.Loop, call, program.Test, program.Case, program.Branch, call, program.Branch, program.End, call, program.End, call}
	var open Open
	for i, k := range list {
		if k == call {
			continue
		}
		if err := open.Next(k); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if len(open) != 0 {
		t.Errorf("%v is open", open)
	}
	kind := func(i int) (program.Kind, bool) { return list[i], list[i] != call }
	for k, want := range map[int]string{1: "1 to 10, parts [3], [4 10]", 4: "4 to 8, parts [5 7], [6 7] [8 8]"} {
		b := Find(k, kind)
		got := fmt.Sprintf("%d to %d, parts %v,", b.At, b.End, b.Parts)
		for i := range b.Parts {
			from, to := b.Part(i)
			got += fmt.Sprintf(" [%d %d]", from, to)
		}
		if got != want {
			t.Errorf("block at %d: %s, want %s", k, got, want)
		}
	}
}
