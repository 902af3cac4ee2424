package mesh

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/ir"
)

// traced are a training step of one device and what each of four ranks runs whose parameters are
// sharded, as PyTorch traced them (tools/torch/pairs.py). The loss of the ranks is the mean of what
// each has of its part of the batch.
func traced(t *testing.T, name string) (device, ranks *ir.Func) {
	t.Helper()
	device, _, err := joint.Load("testdata/models", name+".one")
	if err != nil {
		t.Fatal(err)
	}
	if ranks, _, err = joint.Load("testdata/models", name); err != nil {
		t.Fatal(err)
	}
	loss := ranks.Return().Arg(0)
	c := ranks.InsertBefore(ranks.Return(), ir.NodeSpec{Op: ir.OpAllReduce, Name: "mean", Group: ranks.Module().Groups()[0], Attrs: ir.A("reduce", string(ir.Avg)), Args: []*ir.Value{loss}, Results: []ir.Type{ir.Async(loss.Type())}})
	w := ranks.InsertBefore(ranks.Return(), ir.NodeSpec{Op: ir.OpWaitTensor, Name: "mean_loss", Args: []*ir.Value{c.Result(0)}, Results: []ir.Type{loss.Type()}})
	ranks.SetArg(ranks.Return(), 0, w.Result(0))
	if err := ranks.Module().Verify(); err != nil {
		t.Fatal(err)
	}
	return device, ranks
}

// TestTraced proves loss and all gradients of steps that were traced of one device and sharded, and
// that none is proved whose ranks add up what they should average.
func TestTraced(t *testing.T) {
	files, err := filepath.Glob("testdata/models/*.one.fw.graph.json.gz")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".one.fw.graph.json.gz")
		t.Run(name, func(t *testing.T) {
			device, ranks := traced(t, name)
			o := Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "ranks", Size: 4}}}}
			rep, err := Check(device, ranks, o)
			if err != nil || len(rep.Unknown) > 0 {
				t.Fatal(err, rep)
			}
			t.Logf("%d and %d operations, %d results", len(device.Order()), len(ranks.Order()), len(rep.Results))
			averages := slices.DeleteFunc(slices.Clone(ranks.Order()), func(n *ir.Node) bool { return n.Reduction() != ir.Avg })
			if len(averages) < len(rep.Results) {
				t.Fatalf("%d averages of %d results", len(averages), len(rep.Results))
			}
			n := averages[len(averages)/2]
			ranks.SetAttrs(n, n.Attrs().With("reduce", ir.A("reduce", string(ir.Sum))[0].Val))
			if _, err := Check(device, ranks, o); err == nil {
				t.Errorf("proved with %s", n)
			}
		})
	}
}
