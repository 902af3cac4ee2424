package lt

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

//go:embed skinny.cu
var skinnySource string

// Skinny says how the kernel of skinny.cu is compiled. The zero value is no kernel.
type Skinny struct {
	Rows    uint32 // strips of 16 columns of the result that a block works on at a time
	Parts   uint32 // parts of k in a block
	Cluster uint32 // blocks that share strips, each with Parts parts of k
	Unroll  uint32 // a warp reads 32 * Unroll elements of a row at a time
	Tokens  uint32 // tiles of 8 rows of the result
	Members uint32 // matmuls of a launch with the same left operand; 0 stands for 1
}

// String is the text form in Algo.
func (s Skinny) String() string {
	text := fmt.Sprintf("skinny rows=%d parts=%d cluster=%d unroll=%d tokens=%d", s.Rows, s.Parts, s.Cluster, s.Unroll, s.Tokens)
	if s.Members > 1 {
		text += fmt.Sprintf(" members=%d", s.Members)
	}
	return text
}

func parseSkinny(words []string) (Skinny, error) {
	var s Skinny
	fields := []algoField{{"rows", &s.Rows}, {"parts", &s.Parts}, {"cluster", &s.Cluster}, {"unroll", &s.Unroll}, {"tokens", &s.Tokens}}
	if len(words) == len(fields)+1 {
		fields = append(fields, algoField{"members", &s.Members})
	}
	if len(words) != len(fields) {
		return s, fmt.Errorf("%d parameters, want %d", len(words), len(fields))
	}
	for i, f := range fields {
		v, err := number(words[i], f.name, 32)
		if err != nil {
			return s, err
		}
		*f.at = uint32(v)
	}
	if len(fields) > 5 && s.Members < 2 {
		return s, fmt.Errorf("%d matmuls", s.Members)
	}
	return s, s.check()
}

// check holds the limits of the kernel's source and of a block.
func (s Skinny) check() error {
	warps := uint64(s.Rows) * uint64(s.Parts)
	power := s.Cluster != 0 && s.Cluster&(s.Cluster-1) == 0 && s.Cluster <= 8
	if warps == 0 || warps > 32 || !power || s.Unroll == 0 || s.Unroll > 8 || s.Tokens == 0 || s.Tokens > 8 || s.Members > maxMembers {
		return fmt.Errorf("no kernel has these parameters")
	}
	return nil
}

// source is the kernel's translation unit.
func (s Skinny) source() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define ROWS %d\n#define PARTS %d\n#define CLUSTER %d\n#define UNROLL %d\n#define TOKENS %d\n#define MEMBERS %d\n",
		s.Rows, s.Parts, s.Cluster, s.Unroll, s.Tokens, max(s.Members, 1))
	return b.String() + skinnySource
}

func (s Skinny) threads() int { return 32 * int(s.Rows) * int(s.Parts) }

// shared is the dynamic shared memory of a block: sums of the warps, those for the
// cluster, the block's columns of a.
func (s Skinny) shared(k int64) int {
	const pad, stride = 32, 20
	tokens := 8 * int64(s.Tokens)
	chunks := k / (32 * int64(s.Unroll))
	widest := int64(0)
	for r := range int64(s.Cluster) {
		widest = max(widest, chunks*(r+1)/int64(s.Cluster)-chunks*r/int64(s.Cluster))
	}
	n := int64(s.Rows*s.Parts) * tokens * stride * 4
	if s.Cluster > 1 {
		n += int64(s.Rows) * 8 * tokens * 8
	}
	return int(n + tokens*2*(widest*32*int64(s.Unroll)+pad))
}

// maxShared is what a block may have on compute capability 9.0, less what the system
// takes.
const maxShared = 227 << 10

// maxTokens is the largest number of rows of the result for which the kernel is
// considered: from there on the library's kernels use the tensor cores better.
const maxTokens = 32

// fits reports whether the kernel can do the problem.
func (s Skinny) fits(p *Problem) error {
	if err := s.check(); err != nil {
		return err
	}
	x, y := p.X, p.Y
	switch {
	case p.Bias != 0:
		return errors.New("the kernel adds no bias")
	case p.Type != dtype.BF16 || p.Out != dtype.BF16:
		return errors.New("the kernel is for bf16")
	case p.Batch != 1 || !x.Trans || y.Trans:
		return errors.New("the kernel needs k contiguous in both operands, and no batch")
	case x.Align < 16 || y.Align < 16 || p.D.Align < 4 || x.LD%8 != 0 || y.LD%8 != 0 && p.N > 1 || p.D.LD%2 != 0 && p.N > 1:
		return errors.New("the kernel needs rows that are aligned to 16 bytes")
	case p.N > 8*int64(s.Tokens) || p.K%(32*int64(s.Unroll)) != 0:
		return fmt.Errorf("the kernel is for at most %d rows and multiples of %d columns", 8*s.Tokens, 32*s.Unroll)
	case s.shared(p.K) > maxShared:
		return fmt.Errorf("the kernel needs %d bytes of shared memory", s.shared(p.K))
	}
	return nil
}

// kernel is a loaded kernel, or what stands in for it on the host; the zero value is
// none.
type kernel struct {
	module driver.Module
	f      driver.Func
	host   driver.CFunc
}

const skinnyName = "concert_skinny"

// load compiles and loads a kernel once for the handle.
func (h *Handle) load(s Skinny) (kernel, error) {
	if k, ok := h.kernels[s]; ok {
		return k, nil
	}
	if f := h.lib.lib.skinny(); f != 0 {
		h.kernels[s] = kernel{host: f}
		return h.kernels[s], nil
	}
	if h.opts.Compile == nil {
		return kernel{}, fmt.Errorf("%v: the handle has no compiler", s)
	}
	image, err := h.opts.Compile(skinnyName+".cu", s.source())
	if err != nil {
		return kernel{}, fmt.Errorf("%v: %w", s, err)
	}
	drv := h.lib.drv
	var k kernel
	if k.module, err = drv.ModuleLoad(h.ctx, image); err != nil {
		return kernel{}, fmt.Errorf("%v: %w", s, err)
	}
	if k.f, err = drv.Function(h.ctx, k.module, skinnyName); err == nil {
		err = drv.AllowShared(h.ctx, k.f, maxShared)
	}
	if err != nil {
		return kernel{}, errors.Join(fmt.Errorf("%v: %w", s, err), drv.ModuleUnload(h.ctx, k.module))
	}
	h.kernels[s] = k
	return k, nil
}

// unload drops the kernels' modules.
func (h *Handle) unload() error {
	var mods []driver.Module
	for _, k := range h.kernels {
		if k.host != 0 {
			continue
		}
		mods = append(mods, k.module)
	}
	if h.fetch.module != 0 {
		mods = append(mods, h.fetch.module)
		h.fetch = kernel{}
	}
	slices.Sort(mods)
	var errs []error
	for _, m := range mods {
		errs = append(errs, h.lib.drv.ModuleUnload(h.ctx, m))
	}
	return errors.Join(errs...)
}

func (l *Plan) makeSkinny() error {
	if l.algo.Skinny.Members > 1 {
		return fmt.Errorf("%v is for several matmuls", l.algo)
	}
	err := l.algo.Skinny.fits(&l.problem)
	if err == nil {
		l.kernel, err = l.h.load(l.algo.Skinny)
	}
	return err
}

// canSkinny reports whether kernels of this package can be had.
func (h *Handle) canSkinny() bool { return h.opts.Compile != nil || h.lib.lib.skinny() != 0 }

// tiles is the number of blocks of a launch, less the cluster.
func (s Skinny) tiles(p *Problem) int64 {
	wide := 16 * int64(s.Rows)
	return (p.M + wide - 1) / wide
}

// addSkinny adds the launch: struct args of skinny.cu. If early is not negative it may
// begin before the kernel before it has ended, and fetches up to that many bytes
// of weights into the cache meanwhile.
func (k kernel) addSkinny(cmds *driver.Commands, s driver.Stream, n Skinny, ps []Problem, y driver.Ptr, x, d []driver.Ptr, early int64) {
	p := &ps[0]
	grid, bytes := int64(0), int64(0)
	var members []uint64
	for i := range ps {
		q := &ps[i]
		members = append(members, uint64(x[i]), uint64(d[i]), uint64(q.X.LD), uint64(q.D.LD), uint64(q.M)|uint64(grid)<<32)
		grid += n.tiles(q)
		bytes += 2 * q.M * q.K
	}
	ahead := int64(0)
	if early > 0 {
		ahead = min(256*early/max(bytes, 1), 256)
	}
	words := append([]uint64{uint64(y), uint64(p.Y.LD), uint64(p.N) | uint64(p.K)<<32, uint64(grid) | uint64(ahead)<<32}, members...)
	if k.host != 0 {
		cmds.Call(s, k.host, words...)
		return
	}
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if early >= 0 {
		cmds.LaunchDependent(s, k.f, int(grid)*int(n.Cluster), n.threads(), n.shared(p.K), b)
	} else {
		cmds.Launch(s, k.f, int(grid)*int(n.Cluster), n.threads(), n.shared(p.K), b)
	}
}

// aheadBytes is how much of the weights a kernel that starts early brings into the cache
// ahead of its own loads. On an H200 it pays nothing: a layer of 16 rows took 58.4 us
// with none, 58.9 with 4 MiB, 59.9 with 16 and 61.6 with 32.
const aheadBytes = 0

// earlyArg is what addSkinny wants to know.
func earlyArg(early bool) int64 {
	if early {
		return aheadBytes
	}
	return -1
}

// skinnyKernels lists the kernels worth a trial for matmuls with one left operand, on a
// device with that many multiprocessors, the most promising first.
func skinnyKernels(ps []Problem, sms, most int) []Skinny {
	p := &ps[0]
	if p.N > maxTokens {
		return nil
	}
	members := uint32(len(ps))
	if members == 1 {
		members = 0
	}
	type scored struct {
		s    Skinny
		cost int64
	}
	var list []scored
	tokens := uint32((p.N + 7) / 8)
	for _, rows := range []uint32{1, 2, 4, 8, 16} {
		for _, parts := range []uint32{1, 2, 4, 7, 8, 16} {
			for _, cluster := range []uint32{1, 2, 4, 8} {
				for _, unroll := range []uint32{2, 4} {
					s := Skinny{rows, parts, cluster, unroll, tokens, members}
					if rows*parts < 4 || rows*parts > 16 || s.fitsAll(ps) != nil || tokens > 2 && unroll > 2 {
						continue
					}
					list = append(list, scored{s, s.cost(ps, sms)})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int { return int(a.cost - b.cost) })
	var out []Skinny
	for _, c := range list[:min(most, len(list))] {
		out = append(out, c.s)
	}
	return out
}

// cost is an estimate in bytes for the order of trials: what the busiest
// multiprocessor reads, weights at the rate of its share of memory and a from the
// cache at four times that, and the bytes that could have been read in the time of
// round trips and of a cluster's barriers.
func (s Skinny) cost(ps []Problem, sms int) int64 {
	p := &ps[0]
	const trip = 12 << 10 // a multiprocessor's share of memory bandwidth in half a microsecond
	blocks := int64(0)
	for i := range ps {
		blocks += s.tiles(&ps[i]) * int64(s.Cluster)
	}
	turns := (blocks + int64(sms) - 1) / int64(sms)
	chunk := 32 * int64(s.Unroll)
	chunks := p.K / chunk
	parts := int64(s.Cluster) * int64(s.Parts)
	steps := (chunks + parts - 1) / parts // of the busiest warp
	weights := steps * chunk * int64(s.Parts) * int64(s.Rows) * 16 * 2
	a := p.K / int64(s.Cluster) * int64(s.Tokens) * 8 * 2 / 4
	c := turns*(weights+a) + trip*(1+min(steps, 3)/2)
	if s.Cluster > 1 {
		c += 2 * trip
	}
	if s.threads() < 256 {
		c += trip
	}
	return c
}
