package program

import (
	"strings"
	"testing"
)

// What is isolated goes behind the others with the output that takes its place, and they move up
// to where only it was, as far as they did not share its memory.
func TestIsolate(t *testing.T) {
	p, err := Parse("step", `program @step world 1
stream @compute
events 0
arena 4096
buffer %w at 0 size 1024
buffer %x at 1024 size 256
buffer %next at 0 size 1024
buffer %t at 1536 size 512
buffer %s at 2560 size 300
buffer %u at 3072 size 1024
buffer %early at 3584 size 512
input w donate 0 = %w: f32[256]
input x = %x: f32[64]
input u = %u: f32[256]
output next = %next: f32[256]
output s = %s: f32[75]
body
@compute launch neg (%x: f32[64]) -> (%t: f32[64]) from %t
@compute launch neg (%w: f32[256]) -> (%next: f32[256]) from %next
@compute launch full () -> (%s: f32[75]) {value=1.0} from %s
`)
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Isolate("w", "u", "next")
	if err != nil {
		t.Fatal(err)
	}
	want := `arena 4096
buffer %w at 2048 size 1024
buffer %x at 0 size 256
buffer %next at 2048 size 1024
buffer %t at 512 size 512
buffer %s at 1024 size 300
buffer %u at 3072 size 1024
buffer %early at 1536 size 512
`
	var got strings.Builder
	for line := range strings.Lines(string(q.AppendText(nil))) {
		if strings.HasPrefix(line, "arena") || strings.HasPrefix(line, "buffer") {
			got.WriteString(line)
		}
	}
	if got.String() != want {
		t.Errorf("the buffers are\n%s\nwant\n%s", got.String(), want)
	}
}
