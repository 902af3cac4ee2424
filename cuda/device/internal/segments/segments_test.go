package segments

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// describe is a form in one line, with addresses as offsets of the arena.
func describe(f *Form) string {
	var s []string
	moves := func(what string, list []Move) {
		for _, m := range list {
			s = append(s, fmt.Sprintf("%s %d<-%d %v", what, m.Dst.Off, m.Src.Off, m.Src.Shape))
		}
	}
	moves("before", f.Before)
	for _, t := range f.Clear {
		s = append(s, fmt.Sprintf("clear %d %v", t.Off, t.Shape))
	}
	for _, op := range f.Ops {
		text := op.Kind.String()
		for _, t := range op.Tensors {
			text += fmt.Sprintf(" %d<-%d:%d", t.Dst-1<<20, t.Src-1<<20, t.Bytes)
		}
		s = append(s, text)
	}
	for _, x := range f.Uneven {
		s = append(s, fmt.Sprintf("uneven %d<-%d", x.Recv[0].At-1<<20, x.Send[0].At-1<<20))
	}
	moves("after", f.After)
	return strings.Join(s, "; ")
}

func TestOf(t *testing.T) {
	dense := func(off int64, shape ...int64) rt.Tensor { return rt.Tensor{Off: off, DType: dtype.F32, Shape: shape} }
	turned := dense(4096, 2, 4)
	turned.Strides = []int64{1, 2}
	gaps := dense(4096, 2, 4)
	gaps.Strides = []int64{16, 2}
	place := Place{Base: 1 << 20, Scratch: 1 << 16, Room: 1024, Ranks: 2, Pos: 1}
	for _, c := range []struct {
		name   string
		c      rt.Collective
		staged bool
		want   string
	}{
		{"dense", rt.Collective{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{dense(0, 2, 4)}, Outs: rt.Ts{dense(256, 2, 4)}}, false,
			"all_reduce 256<-0:32"},
		{"the same order", rt.Collective{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{turned}, Outs: rt.Ts{turned}}, false,
			"all_reduce 4096<-4096:32"},
		{"another order", rt.Collective{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{turned}, Outs: rt.Ts{dense(256, 2, 4)}}, false,
			"before 65536<-4096 [2 4]; all_reduce 256<-65536:32"},
		{"a gather of columns", rt.Collective{Op: rt.AllGather, Dim: 1, Ins: rt.Ts{dense(0, 2, 2)}, Outs: rt.Ts{dense(256, 2, 4)}}, false,
			"all_gather 256<-0:8 272<-8:8"},
		{"a gather with gaps", rt.Collective{Op: rt.AllGather, Dim: 0, Ins: rt.Ts{dense(0, 1, 4)}, Outs: rt.Ts{gaps}}, false,
			"all_gather 65536<-0:16; after 4096<-65536 [1 4]; after 4160<-65552 [1 4]"},
		{"a scatter with gaps", rt.Collective{Op: rt.ReduceScatter, Reduce: "sum", Dim: 0, Ins: rt.Ts{gaps}, Outs: rt.Ts{dense(0, 1, 4)}}, false,
			"before 65536<-4096 [1 4]; before 65552<-4160 [1 4]; reduce_scatter 0<-65536:16"},
		// All operands are out of the way before a result is written: each is where the other's result comes.
		{"results that nobody sends over operands", rt.Collective{Op: rt.CollectivePermute, Pairs: []int64{1, 0}, Ins: rt.Ts{dense(0, 4), dense(16, 4)}, Outs: rt.Ts{dense(16, 4), dense(0, 4)}}, true,
			"before 65536<-0 [4]; before 65792<-16 [4]; clear 16 [4]; clear 0 [4]; collective_permute 16<-65536:16 0<-65792:16"},
		{"exchanges over operands", rt.Collective{Op: rt.AllToAll, Ins: rt.Ts{dense(0, 4), dense(16, 4)}, Outs: rt.Ts{dense(16, 4), dense(0, 4)},
			InSplits: [][]int64{{1, 3}, {1, 3}}, OutSplits: [][]int64{{1, 3}, {1, 3}}}, true,
			"before 65536<-0 [4]; before 65792<-16 [4]; uneven 16<-65536; uneven 0<-65792"},
	} {
		f, err := Of(&c.c, place, c.staged)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := describe(f); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	large := rt.Collective{Op: rt.AllReduce, Reduce: "sum", Ins: rt.Ts{turned}, Outs: rt.Ts{dense(256, 2, 4)}}
	place.Room = 128
	if _, err := Of(&large, place, false); err == nil || !strings.Contains(err.Error(), "raise Options.Scratch") {
		t.Errorf("beyond the scratch: %v", err)
	}
}
