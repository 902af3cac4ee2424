package lower_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A shard, of dense and strided operands and between collectives, runs on the
// host device as it does in the interpreter; its group survives the program's text.
func TestShard(t *testing.T) {
	m, err := ir.Parse("shard.ir", `world 4
group @all = [[0, 1, 2, 3]]
group @g = [[0, 2], [3, 1]]

func @f(%x: f32[8,4], %y: f32[4]) -> (f32[2,4], f32[4,4], f32[4,4], f32[2,2]) {
  %a = shard %x on @all {dim=0} : f32[2,4]
  %t = permute %x {dims=[1, 0]} : f32[4,8:1,4]
  %b = shard %t on @g {dim=1} : f32[4,4]
  %s = all_gather %b on @all {dim=1} : async f32[4,16]
  %w = wait_tensor %s : f32[4,16]
  %c = shard %w on @all {dim=1} : f32[4,4]
  %e = expand %y : f32[2,4:0,1]
  %d = shard %e on @g {dim=1} : f32[2,2]
  return %a, %b, %c, %d
}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	again, err := program.Parse("shard.program", p.String())
	if err != nil || again.Digest() != p.Digest() {
		t.Fatalf("the text of the program does not give it back: %v\n%s", err, p)
	}
	src, err := lower.EmitGo(p, "step")
	if err != nil || !strings.Contains(string(src), `x.Shard("compute", "all", 0, `) {
		t.Errorf("emitted code: %v\n%s", err, src)
	}
	ctx := context.Background()
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(ctx, f, in, interp.Options{Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := hostrun.Goroutines(rt.Config{})(ctx, f, in)
	if err != nil {
		t.Fatal(err)
	}
	for r := range want {
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				t.Errorf("rank %d output %d is %v, the interpreter's %v", r, k, got[r][k], want[r][k])
			}
		}
	}
}
