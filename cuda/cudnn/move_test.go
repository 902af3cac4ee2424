package cudnn

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/prelude/clang"
)

// hostHead and hostMain run launches of the kernels of move.cu, one block of one thread after the other. The
// input is the size of the memory, the memory, and for each launch the size of an element,
// the blocks and the parameters, with offsets as pointers; its output is the memory.
const hostHead = `
#include <cstdio>
#include <cstdlib>
#define __global__
#define __device__ static
#define __shared__ static
#define LANES 1
#define __syncthreads()
static struct { unsigned x; } blockIdx, threadIdx;
`
const hostMain = `
int main(int, char **a)
{
	FILE *f = fopen(a[1], "r+b");
	i64 n, head[2];
	args g;
	if (!f || fread(&n, 8, 1, f) != 1)
		return 3;
	char *m = (char *)malloc(n);
	if (fread(m, 1, n, f) != (size_t)n)
		return 4;
	while (fread(head, 16, 1, f) == 1) {
		if (fread(&g, sizeof g, 1, f) != 1)
			return 5;
		g.from = m + (i64)g.from;
		g.to = m + (i64)g.to;
		for (blockIdx.x = 0; blockIdx.x < head[1]; blockIdx.x++)
			head[0] == 2 ? move2(g) : move4(g);
	}
	rewind(f);
	return fwrite(m, 1, n, f) != (size_t)n || fclose(f);
}
`

// movesT is moves within one memory, and what the program of hostMain takes.
type movesT struct {
	memory, launches []byte
	moves            []move
	places           [][2]int64 // offsets: from, to
}

// randomMove draws a move, and how many elements its two sides span.
func randomMove(rng *rand.Rand) (m move, from, to int64) {
	m = move{size: 2 << rng.IntN(2)}
	rank := 1 + rng.IntN(6)
	for range rank {
		m.shape = append(m.shape, []int64{1, 2, 3, 5, 70}[rng.IntN(5-rank/3)])
	}
	strides := func(gap bool) (s []int64, n int64) {
		s, n = make([]int64, rank), 1
		for _, d := range rng.Perm(rank) {
			s[d] = n
			if n *= m.shape[d]; gap && rng.IntN(4) == 0 {
				n++
			}
		}
		return s, n
	}
	m.from, from = strides(true)
	m.to, to = strides(false)
	if rng.IntN(3) == 0 {
		m.to, to = slices.Clone(m.from), from
	}
	if rng.IntN(8) == 0 {
		m.from[rng.IntN(rank)] = 0 // expanded
	}
	return m, from, to
}

// add draws a move of random bytes.
func (x *movesT) add(t *testing.T, rng *rand.Rand) {
	t.Helper()
	m, n, k := randomMove(rng)
	x.memory = append(x.memory, make([]byte, -len(x.memory)&7)...)
	at := int64(len(x.memory))
	x.memory = append(x.memory, make([]byte, (n+k)*int64(m.size)+8)...)
	for i := range x.memory[at:] {
		x.memory[at+int64(i)] = byte(rng.Uint32())
	}
	to := at + n*int64(m.size)
	grid, params, ok := m.launch(uintptr(at), uintptr(to))
	if !ok {
		t.Fatalf("%v is not taken", m)
	}
	x.launches = binary.LittleEndian.AppendUint64(x.launches, uint64(m.size))
	x.launches = append(binary.LittleEndian.AppendUint64(x.launches, uint64(grid)), params...)
	x.moves, x.places = append(x.moves, m), append(x.places, [2]int64{at, to})
}

// run runs the kernels, compiled for the host, and gives the memory afterwards.
func (x *movesT) run(t *testing.T, gxx string) []byte {
	t.Helper()
	dir := t.TempDir()
	source, bin, data := filepath.Join(dir, "move.cc"), filepath.Join(dir, "move"), filepath.Join(dir, "data")
	write := func(path string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(source, []byte(hostHead+moveSource+hostMain))
	write(data, slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(x.memory))), x.memory, x.launches))
	if out, err := exec.Command(gxx, "-std=c++17", "-O0", "-w", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-o", bin, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(bin, data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	return got[:len(x.memory)]
}

// do makes the moves in the memory.
func (x *movesT) do() {
	for i, m := range x.moves {
		size := int64(m.size)
		each(m.shape, func(_ int64, idx []int64) {
			from, to := x.places[i][0], x.places[i][1]
			for d, k := range idx {
				from, to = from+k*m.from[d]*size, to+k*m.to[d]*size
			}
			copy(x.memory[to:to+size], x.memory[from:])
		})
	}
}

// The kernels copy what move says, and write nothing else.
func TestMove(t *testing.T) {
	clang.Check(t, "move.cu", moveSource)
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++: the kernel cannot be run without a GPU")
	}
	var x movesT
	rng := rand.New(rand.NewPCG(8, 9))
	for range 60 {
		x.add(t, rng)
	}
	got := x.run(t, gxx)
	x.do()
	if !bytes.Equal(got, x.memory) {
		at := 0
		for got[at] == x.memory[at] {
			at++
		}
		i, _ := slices.BinarySearchFunc(x.places, int64(at), func(p [2]int64, at int64) int { return int(p[0] - at) })
		t.Errorf("byte %d of the memory differs: %+v", at, x.moves[max(i-1, 0)])
	}
}
