package ir

import (
	"strings"
	"testing"
)

const mlp = `world 8
group @tp = [[0, 1, 2, 3], [4, 5, 6, 7]]
sym s0 hint 16 max 64

func @mlp(%x: bf16[256,4096] !{role="data"}, %w: bf16[512,4096] ms 0.5, %flight: async f32[2*s0+1,8], %t: f32[(s0+1)//2,8]) -> (bf16[256,512], f32[2*s0+1,8], i64[256,4]) {
  %wt = permute %w {dims=[1, 0]} : bf16[4096,512:1,4096]
  %h = matmul %x, %wt : bf16[256,512] ms 0.0102 !{layer=3}
  %r = all_reduce.sum %h, %h on @tp : async(bf16[256,512], bf16[256,512]) ms 0.0311
  %y:2 = wait_tensor %r : bf16[256,512], bf16[256,512]
  %k:2 = topk %y#0 {dim=1, k=4} : bf16[256,4], i64[256,4]
  %f = wait_tensor %flight : f32[2*s0+1,8]
  %call:0 = call %k#0 {effects=["communicates"], target="barrier"}
  return %y#1, %f, %k#1
}
`

func TestRoundTrip(t *testing.T) {
	m, err := Parse("mlp.ir", mlp)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.String(); got != mlp {
		t.Fatalf("printed\n%s\nwant\n%s", got, mlp)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	if got := m.Clone().String(); got != mlp {
		t.Fatalf("clone printed\n%s", got)
	}
}

// Comments and blank lines are free, also where a floor division is near.
func TestComments(t *testing.T) {
	text := strings.ReplaceAll(mlp, "\n", " // why // so\n\n// alone\n")
	m, err := Parse("mlp.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.String(); got != mlp {
		t.Fatalf("printed\n%s\nwant\n%s", got, mlp)
	}
}
