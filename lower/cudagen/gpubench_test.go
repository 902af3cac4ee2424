package cudagen_test

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

var gpubench = flag.String("gpubench", "", "write a program that times the kernels of the traced steps to this folder")

var launches = flag.String("launches", "", "list the launches of the traced steps of four GPUs to this file")

// fourGPU are the traced steps that run on one host of four.
var fourGPU = []string{
	"llama8b_l4_fsdp4.fw", "llama8b_l4_fsdp4.bw", "llama8b_l4_tpsp4.fw", "llama8b_l4_tpsp4.bw",
	"llama8b_l4_tp4_infer.fw", "llama8b_l4_tp4_small.fw", "mixtral_l2_ep4_fsdp4.fw", "mixtral_l2_ep4_fsdp4.bw",
}

// scheduled imports a traced step and runs the pipeline of the GPU on it.
func scheduled(t testing.TB, name string) *ir.Module {
	t.Helper()
	g, err := fx.ReadFile("../../testdata/graphs/" + name + ".graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Import()
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse("canonicalize,simplify-collectives,overlap,fuse{kernels=true}")
	if err != nil {
		t.Fatal(err)
	}
	m := passes.Manager{Costs: cost.TracedH200()}
	if _, err := m.Run(res.Module, p); err != nil {
		t.Fatal(err)
	}
	return res.Module
}

// runs lists the launches of f: regions, and nodes by themselves.
func runs(f *ir.Func) [][]*ir.Node {
	var out [][]*ir.Node
	last := int64(-1)
	for _, n := range f.Order() {
		id := n.Meta().Int(passes.FusionKey, -1)
		switch {
		case id >= 0 && id == last:
			out[len(out)-1] = append(out[len(out)-1], n)
		case id >= 0 || n.Op().Class() == ir.ClassMemory:
			out = append(out, []*ir.Node{n})
		}
		last = id
	}
	return out
}

var comments = regexp.MustCompile(`//.*|/\*.*?\*/`)

// moved is how many bytes a kernel has to move at least: operands once, without
// what is repeated, and results.
func moved(k *cudagen.Kernel, nodes []*ir.Node) int64 {
	sum := int64(0)
	seen := map[string]bool{}
	for _, v := range k.Ins {
		n := int64(1)
		shape, _ := v.Type().Shape().Static()
		for d, s := range v.Type().Strides() {
			if s != 0 {
				n *= shape[d]
			}
		}
		for _, u := range nodes { // tables of which rows are picked
			if (u.Op() == ir.OpEmbedding || u.Op() == ir.OpGather || u.Op() == ir.OpIndex) && u.Arg(0) == v {
				n = min(n, count(u.Result(0)))
			}
		}
		key := fmt.Sprint(v.Name(), v.Index())
		if !seen[key] {
			sum += n * int64(v.Type().DType().Size())
		}
		seen[key] = true
	}
	for _, v := range k.Outs {
		sum += count(v) * int64(v.Type().DType().Size())
	}
	return sum
}

// count is the number of elements of a tensor of known sizes.
func count(v *ir.Value) int64 {
	shape, _ := v.Type().Shape().Static()
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return n
}

// launch is one distinct kernel of the traced steps.
type launch struct {
	k     *cudagen.Kernel
	nodes []*ir.Node
	text  string
	bytes int64
	count map[string]int // by step; look-up only
	err   error
}

// distinct lists the distinct launches of the traced steps, in order of appearance.
func distinct(t testing.TB) []*launch {
	var out []*launch
	at := map[string]*launch{}
	for _, name := range fourGPU {
		m := scheduled(t, name)
		for _, f := range m.Funcs() {
			st, err := ir.ComputeStorages(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range runs(f) {
				var ops, types []string
				for _, n := range r {
					ops = append(ops, n.Op().Name())
				}
				k, err := cudagen.Generate("k", st, r)
				key := strings.Join(ops, " ") + r[0].Result(0).Type().String()
				if err == nil {
					key = fmt.Sprint(k.Grid, comments.ReplaceAllString(k.Body, ""))
				}
				if at[key] == nil {
					at[key] = &launch{k: k, nodes: r, count: map[string]int{}, err: err}
					if err == nil {
						at[key].bytes = moved(k, r)
						for _, v := range k.Ins {
							types = append(types, v.Type().String())
						}
						types = append(types, "->")
						for _, v := range k.Outs {
							types = append(types, v.Type().String())
						}
					}
					at[key].text = fmt.Sprintf("%s | %s | %s", r[len(r)-1].Name(), strings.Join(ops, " "), strings.Join(types, " "))
					out = append(out, at[key])
				}
				at[key].count[name]++
			}
		}
	}
	return out
}

// With -launches=FILE the test lists what the traced steps launch, with the time
// that moving the bytes would take at 4 TB/s.
func TestLaunches(t *testing.T) {
	if *launches == "" {
		t.Skip("no -launches file")
	}
	all := distinct(t)
	var b strings.Builder
	for _, name := range fourGPU {
		rows := slices.DeleteFunc(slices.Clone(all), func(l *launch) bool { return l.count[name] == 0 })
		slices.SortStableFunc(rows, func(x, y *launch) int { return int(y.bytes*int64(y.count[name]) - x.bytes*int64(x.count[name])) })
		total, launches := int64(0), 0
		for _, l := range rows {
			total += l.bytes * int64(l.count[name])
			launches += l.count[name]
		}
		fmt.Fprintf(&b, "== %s: %d launches, %.1f us at 4 TB/s\n", name, launches, float64(total)/4e6)
		for _, l := range rows {
			fmt.Fprintf(&b, "%7.1f us %3d x %6.1f MB  %s", float64(l.bytes)*float64(l.count[name])/4e6, l.count[name], float64(l.bytes)/1e6, l.text)
			if l.err != nil {
				fmt.Fprintf(&b, " (%v)", l.err)
			}
			b.WriteString("\n")
		}
	}
	write(t, *launches, []byte(b.String()))
}

// limit is a bound of the positions that v holds where the nodes use it as such.
func limit(v *ir.Value, nodes []*ir.Node) int64 {
	bound := int64(1000)
	holds := map[*ir.Value]bool{v: true}
	for _, n := range nodes {
		if n.Op().IsView() && holds[n.Arg(0)] || n.Op() == ir.OpWhere && (holds[n.Arg(1)] || holds[n.Arg(2)]) || n.Op() == ir.OpClamp && holds[n.Arg(0)] {
			holds[n.Result(0)] = true
		}
		var dims []int64
		first := 1
		switch n.Op() {
		case ir.OpEmbedding:
			dims = []int64{0}
		case ir.OpGather, ir.OpScatter, ir.OpIndexAdd:
			dims = []int64{n.Attrs().Int("dim", 0)}
		case ir.OpIndex:
			dims = n.Attrs().Ints("dims")
		case ir.OpIndexPut:
			dims, first = n.Attrs().Ints("dims"), 2
		}
		for i, d := range dims {
			if holds[n.Arg(first+i)] {
				shape, _ := n.Arg(0).Type().Shape().Static()
				bound = min(bound+1<<40, shape[d])
			}
		}
	}
	return bound
}

// With -gpubench=FOLDER the test writes a program that times all kernels of the
// traced steps: parts of source, to be compiled apart, and the main one.
func TestGPUBench(t *testing.T) {
	if *gpubench == "" {
		t.Skip("no -gpubench folder")
	}
	all := slices.DeleteFunc(distinct(t), func(l *launch) bool { return l.err != nil })
	const parts = 12
	source := make([]strings.Builder, parts)
	var main, table strings.Builder
	for i := range source {
		source[i].WriteString(cudagen.Prelude())
	}
	main.WriteString(cudagen.Prelude())
	for i, l := range all {
		name := fmt.Sprintf("k%d", i)
		body := strings.Replace(l.k.Body, " k(", " "+name+"(", 1)
		fmt.Fprintf(&source[i%parts], "\n%s", body)
		params := []string{}
		fmt.Fprintf(&table, "  {\"%s\", (const void*)%s, %d, %d, %d, {", name, name, l.k.Grid, l.k.Block, l.bytes)
		for j, v := range append(slices.Clone(l.k.Ins), l.k.Outs...) {
			bytes := int64(v.Type().DType().Size())
			shape, _ := v.Type().Shape().Static()
			for d, s := range v.Type().Strides() {
				bytes += (shape[d] - 1) * s * int64(v.Type().DType().Size())
			}
			kind := int64(0) // floats
			switch dt := v.Type().DType(); {
			case j >= len(l.k.Ins):
				kind = -1
			case dt == ir.I64:
				kind = limit(v, l.nodes)
			case dt == ir.Bool:
				kind = 2
			case dt == ir.F32:
				kind = -2
			}
			fmt.Fprintf(&table, "{%d, %d}, ", bytes, kind)
			params = append(params, fmt.Sprintf("%s*", ctype(v)))
			if j < len(l.k.Ins) {
				params[j] = "const " + params[j]
			}
		}
		table.WriteString("}, {")
		for _, n := range fourGPU {
			fmt.Fprintf(&table, "%d, ", l.count[n])
		}
		fmt.Fprintf(&table, "}, %q},\n", l.text)
		fmt.Fprintf(&main, "extern \"C\" __global__ void %s(%s);\n", name, strings.Join(params, ", "))
	}
	fmt.Fprintf(&main, "static const char* const steps[] = {\"%s\"};\n", strings.Join(fourGPU, `", "`))
	main.WriteString(strings.Replace(benchMain, "TABLE", table.String(), 1))
	var unit strings.Builder
	unit.WriteString(cudagen.Prelude())
	for i := range source {
		write(t, fmt.Sprintf("%s/part%d.cu", *gpubench, i), []byte(source[i].String()))
		unit.WriteString(strings.TrimPrefix(source[i].String(), cudagen.Prelude()))
	}
	write(t, *gpubench+"/unit.cu", []byte(unit.String()))
	write(t, *gpubench+"/main.cu", []byte(main.String()))
}

// benchMain times every kernel in a graph of launches over buffers that take turns,
// so that none is in a cache.
const benchMain = `
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>
#include <vector>
struct Param { long long bytes, kind; };
struct Entry {
  const char* name; const void* f; long long grid, block, bytes;
  std::vector<Param> params; std::vector<int> counts; const char* text; double us;
};
static std::vector<Entry> table = {
TABLE};
static void check(cudaError_t e, const char* what) {
  if (e) { fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e)); exit(1); }
}
__global__ void fill_words(unsigned* p, long long n, long long kind) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    unsigned h = (unsigned)(i * 2654435761u) ^ (unsigned)(i >> 7) * 40503u;
    h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
    const unsigned lo = 0x3c00u | (h & 0x83ffu), hi = 0x3c00u | (h >> 16 & 0x83ffu);
    p[i] = kind == 2 ? h & 0x01010101u : hi << 16 | lo; // halves of about one
    if (kind > 2) p[i] = i % 2 ? 0 : h % (unsigned)kind;
    if (kind == -2) p[i] = 0x3c000000u | (h & 0x83ffffffu);
  }
}
int main(int argc, char** argv) {
  const size_t pool = 40ull << 30;
  char* base;
  check(cudaMalloc(&base, pool), "malloc");
  cudaStream_t st; check(cudaStreamCreate(&st), "stream");
  cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
  {
  for (auto& e : table) {
    size_t foot = 0;
    for (auto& p : e.params) foot += (p.bytes + 4095) / 4096 * 4096;
    size_t turns = std::min<size_t>(std::max<size_t>(1, (400ull << 20) / foot + 1), 64);
    turns = std::min(turns, pool / foot);
    std::vector<std::vector<void*>> args(turns), ptrs(turns);
    char* at = base;
    for (size_t r = 0; r < turns; ++r) {
      for (auto& p : e.params) {
        ptrs[r].push_back(at);
        if (p.kind != -1) fill_words<<<2048, 256, 0, st>>>((unsigned*)at, (p.bytes + 3) / 4, p.kind);
        at += (p.bytes + 4095) / 4096 * 4096;
      }
      for (auto& q : ptrs[r]) args[r].push_back(&q);
    }
    int n = (int)std::min<double>(100, std::max<double>(5, 2e9 / (double)(e.bytes + 1000000)));
    cudaGraph_t g; cudaGraphExec_t x;
    check(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < n; ++i) check(cudaLaunchKernel(e.f, dim3((unsigned)e.grid), dim3((unsigned)e.block), args[i % turns].data(), 0, st), e.name);
    check(cudaStreamEndCapture(st, &g), "end");
    check(cudaGraphInstantiate(&x, g, 0), "instantiate");
    float best = 1e30f;
    for (int rep = 0; rep < 4; ++rep) {
      cudaEventRecord(a, st); cudaGraphLaunch(x, st); cudaEventRecord(b, st);
      if (cudaError_t err = cudaStreamSynchronize(st)) {
        printf("FAILED %s: %s\n", e.name, cudaGetErrorString(err));
        goto report; // with what was measured before
      }
      float ms; cudaEventElapsedTime(&ms, a, b);
      if (rep) best = std::min(best, ms);
    }
    e.us = best * 1e3 / n;
    cudaGraphExecDestroy(x); cudaGraphDestroy(g);
  }
  }
report:
  const int nsteps = sizeof(steps) / sizeof(*steps);
  for (int s = 0; s < nsteps; ++s) {
    double total = 0, ideal = 0; int launches = 0;
    for (auto& e : table) { total += e.us * e.counts[s]; ideal += e.bytes / 4.2e6 * e.counts[s]; launches += e.counts[s]; }
    printf("== %s: %d launches %.1f us, at 4.2 TB/s %.1f us\n", steps[s], launches, total, ideal);
  }
  std::vector<Entry*> order;
  for (auto& e : table) order.push_back(&e);
  auto share = [&](const Entry* e) { int c = 0; for (int n : e->counts) c += n; return e->us * c; };
  std::sort(order.begin(), order.end(), [&](Entry* x, Entry* y) { return share(x) > share(y); });
  for (auto* e : order) {
    cudaFuncAttributes at; cudaFuncGetAttributes(&at, e->f);
    int occ = 0; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, e->f, (int)e->block, 0);
    printf("%-5s %8.1f us total %8.2f us %8.1f MB %6.2f TB/s grid %lld x %lld regs %d spill %zu occ %d  %.230s\n", e->name, share(e), e->us, e->bytes / 1e6, e->bytes / e->us / 1e6, e->grid, e->block, at.numRegs, at.localSizeBytes, occ * (int)e->block, e->text);
  }
}
`
