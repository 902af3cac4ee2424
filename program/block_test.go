package program

import (
	"strings"
	"testing"
)

const loopHead = `program @f world 1
stream @compute
events 0
arena 2048
buffer %x at 0 size 4
buffer %r at 512 size 4
buffer %t at 1024 size 4
buffer %p at 1536 size 1
input x = %x: f32[]
input p = %p: bool[]
output r = %r: f32[]
body
`

// What iterations and branches leave is there as a result only, and brackets match.
func TestBlocks(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"carried", `copy (%x: f32[]) -> (%r: f32[])
loop () -> (%r: f32[])
test (%p: bool[]) -> ()
launch neg (%r: f32[]) -> (%t: f32[])
copy (%t: f32[]) -> (%r: f32[])
end`, ""},
		{"no first value", `loop () -> (%r: f32[])
test (%p: bool[]) -> ()
copy (%x: f32[]) -> (%r: f32[])
end`, "%r is read where nothing has written bytes 512 to 516"},
		{"left by the iteration before", `copy (%x: f32[]) -> (%r: f32[])
copy (%x: f32[]) -> (%t: f32[])
loop () -> (%r: f32[])
test (%p: bool[]) -> ()
launch neg (%t: f32[]) -> (%r: f32[])
launch neg (%r: f32[]) -> (%t: f32[])
end`, "help: what a loop or a branch writes is there behind it"},
		{"of an iteration that there may not be", `copy (%x: f32[]) -> (%r: f32[])
copy (%x: f32[]) -> (%t: f32[])
loop () -> (%r: f32[])
test (%p: bool[]) -> ()
copy (%r: f32[]) -> (%t: f32[])
end
copy (%t: f32[]) -> (%r: f32[])`, "%t is read where bytes 1024 to 1028 were overwritten"},
		{"branches", `case (%p: bool[]) -> (%r: f32[])
branch
copy (%x: f32[]) -> (%r: f32[])
branch
launch neg (%x: f32[]) -> (%t: f32[])
copy (%t: f32[]) -> (%r: f32[])
end`, ""},
		{"a result of one branch", `case (%p: bool[]) -> (%r: f32[])
branch
copy (%x: f32[]) -> (%r: f32[])
branch
copy (%x: f32[]) -> (%t: f32[])
end`, "%r is read where bytes 512 to 516 were overwritten"},
		{"the other branch's", `copy (%x: f32[]) -> (%t: f32[])
case (%p: bool[]) -> (%r: f32[])
branch
launch neg (%x: f32[]) -> (%t: f32[])
copy (%x: f32[]) -> (%r: f32[])
branch
copy (%t: f32[]) -> (%r: f32[])
end`, "%t is read where bytes 1024 to 1028 were overwritten"},
		{"no end", "loop () -> ()\ntest (%p: bool[]) -> ()", "instruction 0: loop has no end"},
		{"no loop", "end", "instruction 0: end outside of a loop or a case"},
		{"no test", "loop () -> ()\nend", "instruction 1: a loop ends without a test"},
		{"two tests", "loop () -> ()\ntest (%p: bool[]) -> ()\ntest (%p: bool[]) -> ()\nend", "instruction 2: test in a loop that has one already"},
		{"branch in a loop", "loop () -> ()\nbranch\nend", "instruction 1: branch in a loop"},
		{"before a branch", "case (%p: bool[]) -> ()\ncopy (%x: f32[]) -> (%r: f32[])\nbranch\nend", "instruction 0: something is between case and its first branch"},
		{"by a float", "loop () -> ()\ntest (%x: f32[]) -> ()\nend", "goes by a truth value without dimensions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := loopHead + "@compute " + strings.ReplaceAll(c.body, "\n", "\n@compute ") + "\n"
			p, err := Parse("t", text)
			if err == nil {
				if got := p.String(); got != text {
					t.Errorf("printed as\n%s", got)
				}
				err = Check(p)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// What stands around a loop on other streams does not run beside it.
func TestBlocksJoin(t *testing.T) {
	p, err := Parse("t", `program @f world 1
group @g = [[0]]
stream @compute
stream @comm on @g
events 2
arena 2048
buffer %x at 0 size 4
buffer %r at 512 size 4
buffer %t at 1024 size 4
buffer %p at 1536 size 1
input x = %x: f32[]
input p = %p: bool[]
output r = %r: f32[]
body
@comm all_reduce on @g (%x: f32[]) -> (%r: f32[]) {reduce="sum"}
@compute loop () -> (%r: f32[])
@compute test (%p: bool[]) -> ()
@comm all_reduce on @g (%r: f32[]) -> (%t: f32[]) {reduce="sum"}
@comm record 0
@compute wait 0
@compute copy (%t: f32[]) -> (%r: f32[])
@compute end
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(p); err != nil {
		t.Error(err)
	}
	s, err := Simulate(p, SimOptions{Us: func(*Instr) float64 { return 1 }})
	if err != nil || s.Us != 3 {
		t.Errorf("simulated: %v, %v", s, err)
	}
	p.Instrs = append(p.Instrs, Instr{Kind: Wait, Event: 0, Group: -1})
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "waits for event 0, which nothing before it records") {
		t.Errorf("got %v", err)
	}
}
