//go:build linux

package device_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Random numbers of every type, and this rank's piece of tensors whose size is known at
// run time, are the interpreter's: eagerly, as a command buffer and as a graph.
func TestRandomAndShard(t *testing.T) {
	m, err := ir.Parse("random.ir", `world 2
group @g = [[0, 1]]
sym s hint 4 max 8

func @f(%x: f32[s,6], %y: bf16[8,4]) -> (f32[1000,3], f16[4096], bf16[4096], f64[7,11], f32[s,3], bf16[4,4]) {
  %a = rand {seed=7} : f32[1000,3]
  %b = rand {seed=7} : f16[4096]
  %c = rand : bf16[4096]
  %d = rand {seed=-1} : f64[7,11]
  %p = shard %x on @g {dim=1} : f32[s,3]
  %q = shard %y on @g {dim=0} : bf16[4,4]
  return %a, %b, %c, %d, %p, %q
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	s := lowered(t, f, lower.Options{Kernels: true})
	drv, devs, o := target(t, 2)
	err = device.Local(t.Context(), drv, devs, rt.Config{}, o, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		for _, size := range []int64{4, 7} {
			sizes := []map[string]int64{{"s": size}, {"s": size}}
			inputs, err := interp.RandomInputs(f, uint64(size), interp.RandomOptions{Symbols: sizes})
			if err != nil {
				return err
			}
			want, err := interp.Run(ctx, f, inputs, interp.Options{Symbols: sizes})
			if err != nil {
				return err
			}
			in, err := hostrun.Inputs(ctx, r, s.Module, inputs[k])
			if err != nil {
				return err
			}
			for _, h := range []how{eager, packed, graph} {
				if h != eager && size != 4 {
					continue // captured for one size, the hint
				}
				got, err := runStep(ctx, r, s, in, h, 2)
				if err != nil {
					return fmt.Errorf("%v: %w", h, err)
				}
				for i := range got {
					if !interp.Equal(got[i], want[k][i]) {
						t.Errorf("rank %d, %v, size %d: output %d differs from the interpreter's", k, h, size, i)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The kernels' text draws the host's numbers, where there is a C++ compiler to run it
// on the host: thread by thread, for dense tensors and for some with gaps.
func TestRandomKernels(t *testing.T) {
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no C++ compiler")
	}
	dir := t.TempDir()
	source, err := filepath.Abs("copy.cu")
	if err != nil {
		t.Fatal(err)
	}
	const count = 5000
	text := fmt.Sprintf(`#include <cstdio>
#include <cstring>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
static void __syncthreads() {}
static void __threadfence_system() {}
static unsigned atomicExch(unsigned *p, unsigned v) { unsigned o = *p; *p = v; return o; }
static int __clz(unsigned n) { return n ? __builtin_clz(n) : 32; }
static unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
struct dim { unsigned x; };
static dim gridDim{1}, blockDim{1}, blockIdx{0}, threadIdx{0};
#include %q
template <typename T, typename F> static void run(F f)
{
	static T all[2 * %[2]d];
	memset(all, 0, sizeof all);
	walk w{%[2]d};
	w.shape[6] = %[2]d / 10, w.to[6] = 20, w.shape[7] = 10, w.to[7] = 1;
	f(all, mix(12345), w);
	for (int i = 0; i < %[2]d; i++)
		fwrite(all + i / 10 * 20 + i %% 10, sizeof(T), 1, stdout);
}
int main()
{
	run<f8e5m2>(concert_rand_f8e5m2);
	run<f8e4m3>(concert_rand_f8e4m3);
	run<f8e3m4>(concert_rand_f8e3m4);
	run<f8e4m3fn>(concert_rand_f8e4m3fn);
	run<f8e5m2fnuz>(concert_rand_f8e5m2fnuz);
	run<f8e4m3fnuz>(concert_rand_f8e4m3fnuz);
	run<f8e4m3b11fnuz>(concert_rand_f8e4m3b11fnuz);
	run<half16>(concert_rand_f16);
	run<bfloat16>(concert_rand_bf16);
	run<float>(concert_rand_f32);
	run<double>(concert_rand_f64);
}
`, source, count)
	path := filepath.Join(dir, "main.cc")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "main")
	if out, err := exec.Command(cxx, "-std=c++17", "-O1", "-o", bin, path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dt := range device.Drawn {
		want, err := hostops.New(dt, count)
		if err == nil {
			err = hostops.Run("rand", rt.A("seed", 12345), []hostops.Tensor{want}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		n := len(want.Data)
		if len(got) < n {
			t.Fatalf("%v: %d bytes, expected %d", dt, len(got), n)
		}
		if !bytes.Equal(got[:n], want.Data) {
			t.Errorf("%v: the numbers are not the host's", dt)
		}
		got = got[n:]
	}
}
