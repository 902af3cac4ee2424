package fx

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readGraph(t testing.TB, name string) *File {
	t.Helper()
	f, err := ReadFile("../../testdata/graphs/" + name + ".graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every backward graph's inputs are fed by its forward graph's outputs.
func TestFeeds(t *testing.T) {
	pairs := 0
	for _, path := range graphFiles(t) {
		base, ok := strings.CutSuffix(path, ".bw.graph.json.gz")
		if !ok {
			continue
		}
		name := base[strings.LastIndexByte(base, '/')+1:]
		fw, bw := readGraph(t, name+".fw"), readGraph(t, name+".bw")
		feeds, err := bw.Feeds(fw)
		if err != nil {
			t.Fatal(err)
		}
		outputs, err := fw.Outputs()
		if err != nil {
			t.Fatal(err)
		}
		tangents := 0
		for k, feed := range feeds {
			in := bw.Inputs()[k]
			if feed.Output == Tangent {
				tangents++
				continue
			}
			if outputs[feed.Output] != in.From {
				t.Errorf("%s: input %s comes from %s, the file says %s", name, in.Name, outputs[feed.Output], in.From)
			}
		}
		if tangents != 1 || len(feeds) != len(outputs) {
			t.Errorf("%s: %d inputs with %d tangents for %d forward outputs", name, len(feeds), tangents, len(outputs))
		}
		r, err := bw.Import()
		if err != nil {
			t.Fatal(err)
		}
		names, err := bw.Outputs()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range Outputs(r.Func) {
			if v == nil {
				got = append(got, "")
			} else {
				got = append(got, v.Name())
			}
		}
		if !slices.Equal(got, names) {
			t.Errorf("%s: the function returns %v, the file %v", name, got, names)
		}
		pairs++
	}
	if pairs < 9 {
		t.Fatalf("%d pairs of graphs, want at least 9", pairs)
	}
}

// What backward takes comes after everything else that forward returns: here the new
// values of two buffers and the loss. A from field that counts otherwise is not believed.
func TestFeedsBehindBuffers(t *testing.T) {
	node := func(name, kind, target, inputs, args, more string) string {
		n := map[string]int{"mean": 2}[name]
		return fmt.Sprintf(`{"name":%q,"kind":%q,"target":%q,"inputs":[%s],"args":%q,"out":[{"shape":[%d],"stride":[1],"dtype":"float32"}]%s}`, name, kind, target, inputs, args, 4-n, more)
	}
	read := func(name string, nodes ...string) *File {
		f, err := Read(name, strings.NewReader(`{"name":"`+name+`","world":1,"groups":{},"nodes":[`+strings.Join(nodes, ",")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	fw := read("fw",
		node("x", "input", "x", "", "()", `,"role":"data"`),
		node("mean", "view", "aten.slice.Tensor", `"x"`, "(x, 0, 0, 2)", ""),
		node("loss", "memory", "aten.exp.default", `"x"`, "(x,)", ""),
		`{"name":"output","kind":"output","target":"output","inputs":["mean","loss","x"],"args":"((mean, mean, loss, x, loss),)","out":[]}`)
	bw := read("bw",
		node("x", "input", "x", "", "()", `,"role":"saved","from":"mean"`),
		node("loss", "input", "loss", "", "()", `,"role":"saved"`),
		node("t", "input", "t", "", "()", `,"role":"tangent"`),
		`{"name":"output","kind":"output","target":"output","inputs":["t"],"args":"((t,),)","out":[]}`)
	feeds, err := bw.Feeds(fw)
	want := []Feed{{"x", "saved", 3}, {"loss", "saved", 4}, {"t", "tangent", Tangent}}
	if d := cmp.Diff(want, feeds); err != nil || d != "" {
		t.Fatal(err, d)
	}

	// Where all has one type, names tell what is saved from what is returned.
	fw = read("fw",
		node("x", "input", "x", "", "()", `,"role":"data"`),
		node("loss", "memory", "aten.exp.default", `"x"`, "(x,)", ""),
		`{"name":"output","kind":"output","target":"output","inputs":["loss","x"],"args":"((x, loss, x, loss),)","out":[]}`)
	bw = read("bw",
		node("x", "input", "x", "", "()", `,"role":"saved"`),
		node("loss", "input", "loss", "", "()", `,"role":"saved"`),
		`{"name":"output","kind":"output","target":"output","inputs":["x"],"args":"((x,),)","out":[]}`)
	feeds, err = bw.Feeds(fw)
	if d := cmp.Diff([]Feed{{"x", "saved", 2}, {"loss", "saved", 3}}, feeds); err != nil || d != "" {
		t.Fatal(err, d)
	}
}

// The forward value that a stale name hides: wait_tensor_1 of the backward graph
// is fed by the shard primals_2, not by the forward graph's wait_tensor_1.
func TestFeedOfStaleName(t *testing.T) {
	feeds, err := readGraph(t, "tiny_fsdp2.bw").Feeds(readGraph(t, "tiny_fsdp2.fw"))
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := readGraph(t, "tiny_fsdp2.fw").Outputs()
	if err != nil {
		t.Fatal(err)
	}
	for _, feed := range feeds {
		if feed.Input == "wait_tensor_1" {
			if outputs[feed.Output] != "primals_2" {
				t.Fatalf("wait_tensor_1 is fed by %s", outputs[feed.Output])
			}
			return
		}
	}
	t.Fatal("tiny_fsdp2.bw has no input wait_tensor_1")
}

// A forward graph that does not fit is refused.
func TestFeedsMismatch(t *testing.T) {
	_, err := readGraph(t, "tiny_fsdp2.bw").Feeds(readGraph(t, "tiny_tp2.fw"))
	const want = `tiny_fsdp2.bw.graph.json.gz: node "primals_22": from: error[feed]: output 1 of the forward graph tiny_tp2.fw is "primals_2", not "primals_22"`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
}
