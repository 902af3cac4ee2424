//go:build linux

package code

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/prelude/clang"
	rt "github.com/seed-ee968945/concert/runtime"
)

// The device's own kernels are CUDA.
func TestCompiles(t *testing.T) {
	text, err := os.ReadFile("copy.cu")
	if err != nil {
		t.Fatal(err)
	}
	clang.Check(t, "copy.cu", string(text))
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
	for _, dt := range drawn {
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
