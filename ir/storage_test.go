package ir

import (
	"slices"
	"testing"
)

// TestStorages pins which values share memory, and where they lie in it.
func TestStorages(t *testing.T) {
	m, err := Parse("t.ir", `world 2
group @g = [[0, 1]]

func @f(%x: f32[4,8], %in: async f32[8]) -> () {
  %v = slice %x {dim=0, end=4, start=1} : f32[3,8]
  %s:2 = split %v {dim=1, sizes=[3,5]} : f32[3,3:8,1], f32[3,5:8,1]
  %c = call %v {effects=["alias"], target="t"} : f32[24]
  %d = call %v {target="t"} : f32[24]
  %w = wait_tensor %in : f32[8]
  %r = all_reduce.sum %x, %w on @g : async (f32[4,8], f32[8])
  %y:2 = wait_tensor %r : f32[4,8], f32[8]
  return
}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	f := m.Func("f")
	st, err := ComputeStorages(f)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]Placement{}
	for _, n := range f.Order() {
		for _, r := range n.Results() {
			at[r.String()] = st.Of(r)
		}
	}
	for _, c := range []struct {
		value, of string
		tensor    int
		offset    int64
	}{
		{"%v", "%x", 0, 8},
		{"%s#0", "%x", 0, 8},
		{"%s#1", "%x", 0, 11},
		{"%c", "%x", 0, 8},
		{"%w", "%in", 0, 0},
		{"%y#0", "%r", 0, 0},
		{"%y#1", "%r", 1, 0},
	} {
		want := []Placement{{at[c.of][c.tensor].Storage, c.offset}}
		if !slices.Equal(at[c.value], want) {
			t.Errorf("%s lies at %v, want %v", c.value, at[c.value], want)
		}
	}
	if root, _ := st.Root(at["%d"][0].Storage); root.Name() != "d" {
		t.Errorf("%%d lies in the storage of %%%s; a call that declares no alias makes its own", root.Name())
	}
	if st.Len() != 5 { // x, in, d and two of r
		t.Errorf("%d storages, want 5", st.Len())
	}
}
