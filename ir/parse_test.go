package ir

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`%y = frobnicate %x : f32[4]`, `t.ir:4:8: error[unknown-op]: "frobnicate" is not an operation; an operation of your own is written: call %operands {target="frobnicate"}`},
		{`%y = neg %x f32[4]`, `t.ir:4:15: error[syntax]: expected ':' before the result types, found "f32"`},
		{`%y = neg %x : f33[4]`, `t.ir:4:17: error[syntax]: "f33" is not an element type; have f64 f32 f16 bf16 i64 i32 i8 u8 bool i16 u16 u32 u64 and f8e5m2 f8e4m3 f8e3m4 f8e4m3fn f8e5m2fnuz f8e4m3fnuz f8e4m3b11fnuz f8e8m0fnu`},
		{`%y = neg %x : f32[4`, `t.ir:4:22: error[syntax]: expected ']' after the dimensions, found the end of the line`},
		{`%y = neg %x : f32[n]`, `t.ir:4:21: error[undefined]: symbol n is not declared`},
		{`%y = neg %x : f32[4:1,1]`, `t.ir:4:23: error[syntax]: strides go with as many dimensions`},
		{`%x = neg %x : f32[4]`, `t.ir:4:3: error[redefined]: %x is defined twice`},
		{`%y:2 = topk %x {dim=0, k=1} : f32[1]`, `t.ir:4:3: error[results]: 2 results are named, 1 types are given`},
		{`%y = neg %x#1 : f32[4]`, `t.ir:4:12: error[undefined]: %x has 1 results, there is no %x#1`},
		{`%y = all_reduce.sum %x on @tp : async f32[4]`, `t.ir:4:29: error[undefined]: group @tp is not declared`},
		{`%y = all_reduce.mode %x : async f32[4]`, `t.ir:4:8: error[unknown-op]: "all_reduce.mode" is not an operation`},
		{`%y = neg %x {dims=[1, "a"]} : f32[4]`, `t.ir:4:25: error[syntax]: a list holds integers or strings, not both`},
		{`%y = neg %x : f32[4] ms -3`, `t.ir:4:27: error[syntax]: expected a cost in milliseconds, found '-'`},
		{`%y = neg %x : f32[4] !3`, `t.ir:4:25: error[syntax]: expected '{' after '!', found "3"`},
		{`%y = neg %x : f32[4] extra`, `t.ir:4:24: error[syntax]: expected the end of the line, found "extra"`},
		{`%y = input : f32[4]`, `t.ir:4:8: error[syntax]: inputs belong in the function's signature`},
		{`%y = neg %x : async()`, `t.ir:4:23: error[syntax]: an async value carries at least one tensor`},
	} {
		text := "world 1\n\nfunc @f(%x: f32[4]) -> () {\n  " + c.line + "\n  return\n}\n"
		_, err := Parse("t.ir", text)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.line, err, c.want)
		}
	}
}

// Each broken line is reported, and only once.
func TestParseCollectsErrors(t *testing.T) {
	_, err := Parse("t.ir", "world 1\nfunc @f(%x: f32[4]) -> (f32[4]) {\n  %a = nge %x : f32[4]\n  %b = neg %y : f32[4]\n  %c = neg %x : f32[4]\n  return %c\n}\n")
	const want = `t.ir:3:8: error[unknown-op]: "nge" is not an operation; an operation of your own is written: call %operands {target="nge"}
    3 |   %a = nge %x : f32[4]
      |        ^~~
t.ir:4:12: error[undefined]: %y is not defined before this line
    4 |   %b = neg %y : f32[4]
      |            ^~`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// chain is a function of n nodes: matmuls with a collective every few.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("world 8\ngroup @tp = [[0, 1, 2, 3, 4, 5, 6, 7]]\n\nfunc @chain(%x0: bf16[256,256], %w: bf16[256,256]) -> (bf16[256,256]) {\n")
	last := "x0"
	for i := 1; i < n; i++ {
		switch i % 4 {
		case 3:
			fmt.Fprintf(&b, "  %%x%d = all_reduce.sum %%%s on @tp : async bf16[256,256] ms 0.0311\n", i, last)
		case 0:
			fmt.Fprintf(&b, "  %%x%d = wait_tensor %%%s : bf16[256,256]\n", i, last)
		default:
			fmt.Fprintf(&b, "  %%x%d = matmul %%%s, %%w : bf16[256,256] ms 0.0102 !{layer=%d}\n", i, last, i/100)
		}
		last = fmt.Sprintf("x%d", i)
	}
	fmt.Fprintf(&b, "  return %%%s\n}\n", last)
	return b.String()
}

func BenchmarkParse30k(b *testing.B) {
	text := chain(30001)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse("chain.ir", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint30k(b *testing.B) {
	m, err := Parse("chain.ir", chain(30001))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		m.AppendText(nil)
	}
}

func BenchmarkVerify30k(b *testing.B) {
	m, err := Parse("chain.ir", chain(30001))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := m.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse looks for panics in parser, verifier and printer, and for text that
// does not survive a round trip.
func FuzzParse(f *testing.F) {
	f.Add(mlp)
	f.Add(chain(9))
	f.Add("world 2\ngroup @g = [[0, 1]]\nsym s hint 1 max 2\nfunc @f(%x: f32[s,(s+1)//2]) -> () {\n  %a = all_to_all %x on @g {in_splits=[\"1,s-1\"], out_splits=[\"s,0\"]} : async f32[s,(s+1)//2]\n  %b:2 = split %x {dim=0, sizes=[1, 1]} : f32[1,2], f32[1,2]\n  return %b#1\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse("fuzz.ir", text)
		if err != nil {
			return
		}
		printed := m.String()
		again, err := Parse("again.ir", printed)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if again.String() != printed {
			t.Fatalf("printed\n%s\nthen\n%s", printed, again)
		}
		if m.Verify() == nil {
			if c := m.Clone(); c.Verify() != nil || c.String() != printed {
				t.Fatal("the clone differs")
			}
			for _, fn := range m.Funcs() {
				_, _ = ComputeStorages(fn)
			}
		}
	})
}
