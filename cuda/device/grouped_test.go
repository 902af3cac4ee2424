//go:build linux

package device_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// product is a grouped matmul of types as the IR spells them, and the ends of its groups.
type product struct {
	a, b, out string
	ends      []int64
}

func (p product) String() string { return fmt.Sprintf("%s x %s", p.a, p.b) }

// function is the product as one, with another matmul, of types as well, beside it if that is there.
func (p product) function(t testing.TB, beside ...string) *ir.Func {
	t.Helper()
	params, body, results, types := "", "", "", ""
	if len(beside) > 0 {
		params, results, types = fmt.Sprintf(", %%x: %s, %%y: %s", beside[0], beside[1]), ", %dense", ", "+beside[2]
		body = "  %dense = matmul %x, %y : " + beside[2] + "\n"
	}
	text := fmt.Sprintf("world 1\n\nfunc @f(%%a: %s, %%b: %s, %%ends: i32[%d]%s) -> (%s%s) {\n  %%grouped = grouped_matmul %%a, %%b, %%ends : %s\n%s  return %%grouped%s\n}\n",
		p.a, p.b, len(p.ends), params, p.out, types, p.out, body, results)
	m, err := ir.Parse("grouped.ir", text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m.Funcs()[0]
}

// inputs are random operands, and the ends.
func (p product) inputs(t testing.TB, f *ir.Func) [][]interp.Tensor {
	t.Helper()
	in, err := interp.RandomInputs(f, 3, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ends := []byte{}
	for _, e := range p.ends {
		ends = binary.LittleEndian.AppendUint32(ends, uint32(e))
	}
	in[0][2] = interp.Tensor{DType: dtype.I32, Shape: []int64{int64(len(p.ends))}, Data: ends}
	return in
}

// Grouped matmuls of halves are a library's, others are generated. All give the interpreter's numbers.
func TestGroupedMatmul(t *testing.T) {
	for _, p := range []product{
		{"bf16[600,264]", "bf16[4,264,520]", "bf16[600,520]", []int64{0, 129, 129, 555}},
		{"bf16[600,264]", "bf16[4,264,520:137280,1,264]", "bf16[600,520]", []int64{600, 600, 600, 600}},
		{"bf16[264,600:1,264]", "bf16[600,520]", "bf16[4,264,520]", []int64{0, 257, 258, 590}},
		{"f16[264,600]", "f16[600,520:1,600]", "f16[4,264,520]", []int64{3, 257, 258, 600}},
		{"f16[600,264:1,600]", "f16[4,264,515]", "f16[600,515]", []int64{77, 205, 205, 600}},
		{"bf16[4,264,600]", "bf16[600,520]", "bf16[264,520]", []int64{7, 140, 140, 501}},
		{"bf16[50,16]", "bf16[70,16,24]", "bf16[50,24]", slices.Repeat([]int64{49}, 70)},
		{"f32[60,26]", "f32[4,26,52]", "f32[60,52]", []int64{0, 12, 12, 55}},
	} {
		f := p.function(t)
		in := p.inputs(t, f)
		want, err := interp.Run(t.Context(), f, in, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, spans := convolve(t, f, in, func(driver.Driver, *device.Options) {})
		if e, most := farOff(got[0], want[0][0]); !(e <= most) {
			t.Errorf("%v: %g of its largest element off, at most %g is allowed", p, e, most)
		}
		who := map[bool]string{false: "gemm", true: "grouped"}[*onGPU]
		if p.a[:3] == "f32" {
			who = map[bool]string{false: "host: ", true: "generated: "}[*onGPU]
		}
		if len(spans) != 1 {
			t.Errorf("%v: %d launches", p, len(spans))
		}
		for name, x := range spans {
			if !strings.HasPrefix(x.Algo, who) {
				t.Errorf("%v: %s is done by %s, want %s", p, name, x.Algo, who)
			}
		}
	}
}

// BenchmarkGrouped tells what the zoo's grouped matmuls take, with groups of equal size and of
// others, beside a matmul of as many operations. With -gpu only.
func BenchmarkGrouped(b *testing.B) {
	if !*onGPU {
		b.Skip("times of the fake driver say nothing")
	}
	for _, c := range []struct {
		models, what string
		p            product
		beside       []string
	}{
		{"gpt_oss", "gate and up", product{a: "bf16[4096,1024]", b: "bf16[8,1024,1024]", out: "bf16[4096,1024]"}, []string{"bf16[4096,1024]", "bf16[1024,1024]", "bf16[4096,1024]"}},
		{"gpt_oss", "down", product{a: "bf16[4096,512]", b: "bf16[8,512,1024]", out: "bf16[4096,1024]"}, []string{"bf16[4096,512]", "bf16[512,1024]", "bf16[4096,1024]"}},
		{"gpt_oss,qwen3_moe", "dx of gate and up", product{a: "bf16[4096,1024]", b: "bf16[8,1024,1024:1048576,1,1024]", out: "bf16[4096,1024]"}, []string{"bf16[4096,1024]", "bf16[1024,1024:1,1024]", "bf16[4096,1024]"}},
		{"gpt_oss", "dx of down", product{a: "bf16[4096,1024]", b: "bf16[8,1024,512:524288,1,1024]", out: "bf16[4096,512]"}, []string{"bf16[4096,1024]", "bf16[1024,512:1,1024]", "bf16[4096,512]"}},
		{"gpt_oss,qwen3_moe", "dw of gate and up", product{a: "bf16[1024,4096:1,1024]", b: "bf16[4096,1024]", out: "bf16[8,1024,1024]"}, []string{"bf16[1024,4096:1,1024]", "bf16[4096,1024]", "bf16[1024,1024]"}},
		{"gpt_oss", "dw of down", product{a: "bf16[512,4096:1,512]", b: "bf16[4096,1024]", out: "bf16[8,512,1024]"}, []string{"bf16[512,4096:1,512]", "bf16[4096,1024]", "bf16[512,1024]"}},
		{"qwen3_moe", "down", product{a: "bf16[4096,512]", b: "bf16[8,512,1024:524288,1,512]", out: "bf16[4096,1024]"}, []string{"bf16[4096,512]", "bf16[512,1024:1,512]", "bf16[4096,1024]"}},
	} {
		for i, name := range []string{"even", "uneven"} {
			p := c.p
			p.ends = [][]int64{{512, 1024, 1536, 2048, 2560, 3072, 3584, 4096}, {700, 701, 1300, 1300, 2433, 3000, 3333, 4001}}[i]
			b.Run(c.models+"/"+c.what+"/"+name, func(b *testing.B) {
				f := p.function(b, c.beside...)
				for b.Loop() {
					_, spans := convolve(b, f, p.inputs(b, f), func(driver.Driver, *device.Options) {})
					for _, x := range spans {
						b.Logf("%s %.4f ms: %s", x.Name, x.End-x.Start, x.Algo)
					}
				}
			})
		}
	}
}
