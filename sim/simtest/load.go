// Package simtest loads traced graphs for the tests of the simulator and of the
// scheduler. It reads only what these need and interprets no operator.
package simtest

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/sim"
)

// Tensor is one result of a node.
type Tensor struct {
	Shape  []int64 `json:"shape"`
	Stride []int64 `json:"stride"`
	DType  string  `json:"dtype"`
}

// Node is one node of a traced graph.
type Node struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Target  string   `json:"target"`
	Inputs  []string `json:"inputs"`
	Args    string   `json:"args"`
	Kwargs  string   `json:"kwargs"`
	Out     []Tensor `json:"out"`
	Ms      float64  `json:"ms"`
	Op      string   `json:"op,omitempty"`
	Group   string   `json:"group,omitempty"`
	Reduce  string   `json:"reduce,omitempty"`
	Role    string   `json:"role,omitempty"`
	From    string   `json:"from,omitempty"`
	Members []string `json:"members,omitempty"`
}

// Graph is one traced graph.
type Graph struct {
	Name   string             `json:"name"`
	World  int                `json:"world"`
	Groups map[string][][]int `json:"groups"`
	Nodes  []Node             `json:"nodes"`
}

// Root returns the directory of the module that holds the working directory, which in a
// test is the folder of its package; the working directory itself if there is none. Not
// by runtime.Caller: binaries built with -trimpath know no directory.
func Root() string {
	wd, err := os.Getwd()
	if err != nil {
		return "."
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return wd
		}
	}
}

// Model returns the simulator model of testdata/graphs/NAME.graph.json.gz.
func Model(t testing.TB, name string) *sim.Model {
	t.Helper()
	g, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Imported returns the simulator model of testdata/graphs/NAME.graph.json.gz by way of the IR.
func Imported(t testing.TB, name string) *sim.Model {
	t.Helper()
	file, err := fx.ReadFile(filepath.Join(Root(), "testdata", "graphs", name+".graph.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.FromFunc(r.Func, sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Load reads testdata/graphs/NAME.graph.json.gz.
func Load(name string) (*Graph, error) {
	f, err := os.Open(filepath.Join(Root(), "testdata", "graphs", name+".graph.json.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	g := new(Graph)
	if err := json.NewDecoder(z).Decode(g); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return g, nil
}

var itemSize = map[string]int64{"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8,
	"int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}

// Bytes returns the size of a tensor before rounding.
func (t Tensor) Bytes() int64 {
	n, ok := itemSize[t.DType]
	if !ok {
		panic("simtest: unknown element type " + t.DType)
	}
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Model returns the graph as a simulator model; node i of the graph is node i of
// the model.
func (g *Graph) Model() (*sim.Model, error) {
	b := sim.NewBuilder(len(g.Nodes))
	id := make(map[string]int32, len(g.Nodes))
	for i := range g.Nodes {
		x := &g.Nodes[i]
		ops := make([]int32, len(x.Inputs))
		for k, in := range x.Inputs {
			p, ok := id[in]
			if !ok {
				return nil, fmt.Errorf("%s: %s reads unknown %s", g.Name, x.Name, in)
			}
			ops[k] = p
		}
		size := make([]int64, len(x.Out))
		for k, t := range x.Out {
			size[k] = t.Bytes()
		}
		var n int32
		switch x.Kind {
		case "input":
			n = b.Input(x.Role == "parameter" || x.Role == "data", size...)
		case "compute", "memory":
			n = b.Compute(x.Ms, ops, size...)
		case "view":
			if k, ok := item(g, x, ops[0]); ok {
				n = b.Pick(ops[0], k)
			} else {
				n = b.View(ops...)
			}
		case "wait":
			n = b.Wait(ops[0])
		case "collective":
			key := sim.Key{Op: x.Op, Group: x.Group, GroupSize: len(g.Groups[x.Group][0]), Reduce: x.Reduce}
			n = b.Start(x.Ms, key, true, max(g.Nodes[ops[0]].Out[0].Bytes(), size[0]), ops, size...)
		case "output":
			n = b.Output(ops...)
		default:
			return nil, fmt.Errorf("%s: %s has kind %q", g.Name, x.Name, x.Kind)
		}
		id[x.Name] = n
	}
	return b.Build()
}

// item returns the result of its operand that a getitem takes.
func item(g *Graph, x *Node, operand int32) (int, bool) {
	p := &g.Nodes[operand]
	if !strings.Contains(x.Target, "getitem") || p.Kind == "view" || len(p.Out) < 2 {
		return 0, false
	}
	_, last, _ := strings.Cut(strings.Trim(x.Args, "()"), ",")
	k, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil {
		return 0, false
	}
	if strings.Contains(p.Target, "cudnn_attention.default") { // items 2 to 5 are not tensors
		k = map[int]int{0: 0, 1: 1, 6: 2, 7: 3}[k]
	}
	return k, true
}

// TracedH200Cost returns milliseconds of one collective of the given bytes by
// cost.H200: NCCL as measured on 4 and on 8 of them.
func TracedH200Cost() func(key sim.Key, bytes int64) float64 {
	table := cost.H200()
	return func(key sim.Key, bytes int64) float64 {
		us, _ := table.Micros(key.Op, "nccl", key.GroupSize, bytes)
		return us / 1000
	}
}
