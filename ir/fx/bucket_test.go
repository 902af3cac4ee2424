package fx

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// form joins traced collectives as a bucket pass does: one variadic collective
// at the first member's place, one wait at the first wait's, the members' waits
// aliases of its results.
func form(t *testing.T, f *ir.Func, name string, ms float64, members ...string) *ir.Node {
	t.Helper()
	var args, results []*ir.Value
	var waits []*ir.Node
	var types []ir.Type
	first := f.Lookup(members[0])
	for _, m := range members {
		n := f.Lookup(m)
		if n == nil || len(n.Result(0).Uses()) != 1 {
			t.Fatalf("%s is not a collective in the graph", m)
		}
		args = append(args, n.Arg(0))
		types = append(types, n.Result(0).Type().Elems()...)
		results = append(results, n.Result(0))
		waits = append(waits, n.Result(0).Uses()[0].Node)
	}
	b := f.InsertBefore(first, ir.NodeSpec{Op: first.Op(), Name: name, Args: args, Results: []ir.Type{ir.Async(types...)}, Group: first.Group(),
		Attrs: first.Attrs(), Cost: ms, HasCost: true, Meta: attr.Make(attr.Attr{Key: MetaMembers, Val: attr.Strings(members...)})})
	w := f.InsertBefore(waits[0], ir.NodeSpec{Op: ir.OpWaitTensor, Name: name + ".wait", Args: []*ir.Value{b.Result(0)}, Results: types})
	for k, n := range waits {
		f.SetArg(n, 0, w.Result(k))
		f.SetOp(n, ir.OpAlias)
		f.Remove(results[k].Def())
	}
	if err := f.Module().Verify(); err != nil {
		t.Fatal(err)
	}
	return b
}

// changedNodes compares an exported document with the traced one: it gives the nodes that were added or
// changed, as JSON by name, and checks that of the traced ones only the members of a bucket are gone.
func changedNodes(t *testing.T, traced, exported []byte, members []string) map[string]string {
	t.Helper()
	nodes := func(text []byte) []map[string]any {
		var doc struct{ Nodes []map[string]any }
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Nodes
	}
	old := map[string]map[string]any{}
	for _, n := range nodes(traced) {
		old[n["name"].(string)] = n
	}
	changed := map[string]string{}
	for _, n := range nodes(exported) {
		name := n["name"].(string)
		o := old[name]
		delete(old, name)
		if o != nil && cmp.Equal(o, n) {
			continue
		}
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		changed[name] = string(b)
	}
	for _, m := range members {
		if old[m] == nil {
			t.Errorf("%s still stands", m)
		}
		delete(old, m)
	}
	for name := range old {
		t.Errorf("%s is gone", name)
	}
	return changed
}

// A bucket is one collective with its members' operands and results, one wait,
// and a view of the wait for each traced wait; nothing else changes.
func TestExportBucket(t *testing.T) {
	src := readGraph(t, "tiny_fsdp2.fw")
	r, err := src.Import()
	if err != nil {
		t.Fatal(err)
	}
	members := []string{"all_gather_into_tensor_2", "all_gather_into_tensor_3", "all_gather_into_tensor_4"}
	form(t, r.Func, "ag.b0", 0.015154, members...)
	// A schedule also moves: the first gather starts after the second.
	r.Func.MoveAfter(r.Func.Lookup("all_gather_into_tensor_1"), r.Func.Lookup("all_gather_into_tensor"))

	var out bytes.Buffer
	if err := Export(&out, src, r.Func); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ag_b0":         `{"args":"([primals_3, primals_4, primals_5], 2, '1')","group":"1","inputs":["primals_3","primals_4","primals_5"],"kind":"collective","kwargs":"","members":["all_gather_into_tensor_2","all_gather_into_tensor_3","all_gather_into_tensor_4"],"ms":0.015154,"name":"ag_b0","op":"all_gather","out":[{"dtype":"bfloat16","shape":[64,64],"stride":[64,1]},{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]},{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]}],"target":"_c10d_functional.all_gather_into_tensor_coalesced.default"}`,
		"ag_b0_wait":    `{"args":"(ag_b0,)","inputs":["ag_b0"],"kind":"wait","kwargs":"","ms":0,"name":"ag_b0_wait","out":[{"dtype":"bfloat16","shape":[64,64],"stride":[64,1]},{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]},{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]}],"target":"_c10d_functional.wait_tensor.default"}`,
		"wait_tensor_2": `{"args":"(ag_b0_wait, 0)","inputs":["ag_b0_wait"],"kind":"view","kwargs":"","ms":0,"name":"wait_tensor_2","out":[{"dtype":"bfloat16","shape":[64,64],"stride":[64,1]}],"target":"\u003cbuilt-in function getitem\u003e"}`,
		"wait_tensor_3": `{"args":"(ag_b0_wait, 1)","inputs":["ag_b0_wait"],"kind":"view","kwargs":"","ms":0,"name":"wait_tensor_3","out":[{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]}],"target":"\u003cbuilt-in function getitem\u003e"}`,
		"wait_tensor_4": `{"args":"(ag_b0_wait, 2)","inputs":["ag_b0_wait"],"kind":"view","kwargs":"","ms":0,"name":"wait_tensor_4","out":[{"dtype":"bfloat16","shape":[32,64],"stride":[64,1]}],"target":"\u003cbuilt-in function getitem\u003e"}`,
	}
	if d := cmp.Diff(want, changedNodes(t, unpack(t, "tiny_fsdp2.fw"), out.Bytes(), members)); d != "" {
		t.Error(d)
	}

	// The scheduled document imports too, members included, and exports to itself.
	again, err := Read("again", bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := again.Import()
	if err != nil {
		t.Fatal(err)
	}
	if m := s.Func.Lookup("ag_b0").Meta().Strs(MetaMembers); !cmp.Equal(m, members) {
		t.Errorf("members came back as %v", m)
	}
	var twice bytes.Buffer
	if err := Export(&twice, again, s.Func); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(twice.Bytes(), out.Bytes()) {
		t.Error("the scheduled document does not export to itself")
	}
}

// A copy that feeds a bucket is a memory node; the bucket reads it instead of the traced operand.
func TestExportCopy(t *testing.T) {
	src := readGraph(t, "tiny_fsdp2.fw")
	r, err := src.Import()
	if err != nil {
		t.Fatal(err)
	}
	b := form(t, r.Func, "b0", 0.01, "all_gather_into_tensor_3", "all_gather_into_tensor_4")
	c := r.Func.InsertBefore(b, ir.NodeSpec{Op: ir.OpClone, Name: "copy", Args: []*ir.Value{b.Arg(0)}, Results: []ir.Type{b.Arg(0).Type()}, Cost: 0.001, HasCost: true})
	r.Func.SetArg(b, 0, c.Result(0))
	var out bytes.Buffer
	if err := Export(&out, src, r.Func); err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"copy","kind":"memory","target":"aten.clone.default","inputs":["primals_4"],"args":"(primals_4,)","kwargs":"{'memory_format': torch.contiguous_format}","out":[{"shape":[16,64],"stride":[64,1],"dtype":"bfloat16"}],"ms":0.001},{"name":"b0","kind":"collective","target":"_c10d_functional.all_gather_into_tensor_coalesced.default","inputs":["copy","primals_5"],`
	if !strings.Contains(out.String(), want) {
		t.Errorf("the document lacks\n%s", want)
	}
}

// Export names the node that stands in the way.
func TestExportRefuses(t *testing.T) {
	const head = "tiny_fsdp2.fw.graph.json.gz: node "
	for _, c := range []struct {
		name string
		edit func(t *testing.T, f *ir.Func)
		want string
	}{
		{"removed", func(t *testing.T, f *ir.Func) {
			n := f.Lookup("alias_1")
			f.ReplaceUses(n.Result(0), n.Arg(0))
			f.Remove(n)
		},
			`"alias_1": error[export]: passes removed the node; only order and buckets can be exported against a trace`},
		{"rewired", func(t *testing.T, f *ir.Func) { f.SetArg(f.Lookup("mul_2"), 1, f.Lookup("primals_25").Result(0)) },
			`"mul_2": error[export]: passes rewired operand 1 from %primals_24 to %primals_25`},
		{"changed", func(t *testing.T, f *ir.Func) {
			f.SetAttrs(f.Lookup("pow_1"), attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(3)}))
		}, `"pow_1": error[export]: passes changed the node to: %pow_1 = pow %convert_element_type {scalar=3} : f32[32,64] ms 3e-06`},
		{"added", func(t *testing.T, f *ir.Func) {
			x := f.Lookup("mul_1").Result(0)
			f.InsertAfter(f.Lookup("permute"), ir.NodeSpec{Op: ir.OpMatmul, Name: "extra", Args: []*ir.Value{x, f.Lookup("permute").Result(0)}, Results: []ir.Type{x.Type()}})
		}, `"extra": error[export]: passes added the node, which is neither a bucket nor a copy: %extra = matmul %mul_1, %permute : bf16[32,64]`},
		{"member order", func(t *testing.T, f *ir.Func) {
			b := form(t, f, "b0", 0.01, "all_gather_into_tensor_3", "all_gather_into_tensor_4")
			f.SetMeta(b, attr.Make(attr.Attr{Key: MetaMembers, Val: attr.Strings("all_gather_into_tensor_4", "all_gather_into_tensor_3")}))
		}, `"all_gather_into_tensor_4": error[export]: bucket b0 reads %primals_4 in its place, traced is %primals_5`},
		{"member count", func(t *testing.T, f *ir.Func) {
			b := form(t, f, "b0", 0.01, "all_gather_into_tensor_3", "all_gather_into_tensor_4")
			f.SetMeta(b, attr.Make(attr.Attr{Key: MetaMembers, Val: attr.Strings("all_gather_into_tensor_4")}))
		}, `"b0": error[export]: the bucket names 1 members and has 2 operands`},
		{"no cost", func(t *testing.T, f *ir.Func) {
			b := form(t, f, "b0", 0.01, "all_gather_into_tensor_3", "all_gather_into_tensor_4")
			n := f.InsertBefore(b, ir.NodeSpec{Op: b.Op(), Name: "b1", Args: b.Args(), Results: []ir.Type{b.Result(0).Type()}, Group: b.Group(), Meta: b.Meta()})
			f.ReplaceUses(b.Result(0), n.Result(0))
			f.Remove(b)
		}, `"b1": error[export]: the bucket has no cost`},
		{"swapped waits", func(t *testing.T, f *ir.Func) {
			form(t, f, "b0", 0.01, "all_gather_into_tensor_3", "all_gather_into_tensor_4")
			f.SetArg(f.Lookup("wait_tensor_3"), 0, f.Lookup("b0.wait").Result(1))
		}, `"wait_tensor_3": error[export]: the wait of a member of bucket b0 must be an alias of %b0.wait#0, it is: %wait_tensor_3 = alias %b0.wait#1 : bf16[32,64]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := readGraph(t, "tiny_fsdp2.fw")
			r, err := src.Import()
			if err != nil {
				t.Fatal(err)
			}
			c.edit(t, r.Func)
			err = Export(&bytes.Buffer{}, src, r.Func)
			if err == nil || err.Error() != head+c.want {
				t.Errorf("got  %v\nwant %s", err, head+c.want)
			}
		})
	}
}
