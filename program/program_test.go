package program

import (
	"strings"
	"testing"
)

const step = `program @step world 4
group @dp = [[0, 1], [2, 3]]
sym s0 hint 4 max 8
stream @compute
stream @comm.dp on @dp
events 3
arena 4096
buffer %x at 0 size 512
buffer %full at 512 size 1024
buffer %y at 1536 size 512
buffer %g at 2048 size 512
input x {parameter} = %x: f32[8,16]
input g async 2 = %g: f32[s0,8], %g+256: f32[8]
output y = %y+64: f32[8,4:1,8]
output full async 1 = %full: f32[16,16]
body
@compute record 0
@comm.dp wait 0
@comm.dp all_gather on @dp (%x: f32[8,16]) -> (%full: f32[16,16]) {dim=0} from %gather
@comm.dp record 1
@compute wait 2
@compute launch relu (%x: f32[8,4:16,1]) -> (%y+64: f32[8,4:1,8]) from %relu.1
@compute copy (%g: f32[8]) -> (%y: f32[8])
`

func TestRoundTrip(t *testing.T) {
	p, err := Parse("step.prog", step)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != step {
		t.Fatalf("printed\n%s", got)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"wait 0", "wait 7", "instruction 1 (): event 7 of 3"},
		{"@compute record 0\n", "", "instruction 0 (): waits for event 0, which nothing before it records"},
		{"%full: f32[16,16]) {", "%full: f32[17,16]) {", "instruction 2 (gather): tensor 0 reaches 1088 bytes from 0 in buffer %full of 1024"},
		{"buffer %y at 1536", "buffer %y at 1500", "buffer %y at 1500 of 512 bytes does not lie aligned in the arena of 4096"},
		{"launch relu (%x", "launch relu (%z", "step.prog:22:24: error[undefined]: buffer %z is not declared"},
		{"@comm.dp all_gather on @dp", "@comm.dp all_gather", `step.prog:19:10: error[syntax]: "all_gather" is not an instruction`},
		{"stream @comm.dp on @dp", "stream @comm.dp", "every other one serves a group"},
		{"body\n", "", `step.prog:17:1: error[syntax]: expected group, sym, stream, events, arena, buffer, input, output, unit, kernel, step or body, found '@'`},
		{"events 3", "events 99999999999", "the number of events must be within"},
		{"f32[s0,8]", "f32[s1,8]", "step.prog:13:27: error[undefined]: symbol s1 is not declared"},
	} {
		text := strings.Replace(step, c.old, c.new, 1)
		if text == step {
			t.Fatalf("%q does not occur", c.old)
		}
		_, err := Parse("step.prog", text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v\nwant %s", c.old, c.new, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(step)
	f.Add(fused)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse("fuzz", s)
		if err != nil {
			return
		}
		q, err := Parse("again", p.String())
		if err != nil || q.String() != p.String() {
			t.Fatalf("does not read back: %v\n%s", err, p)
		}
	})
}
