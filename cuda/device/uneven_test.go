//go:build linux

package device_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// Tokens that go to experts and back: exchanges of rows of which some ranks get none and
// some more than any slot of packets holds, eagerly and in graphs, give what the host
// device gives.
func TestExchangeOfManyRows(t *testing.T) {
	const n, most = 4, 900
	width := int64(512) // a row has 2 KiB
	if testing.Short() {
		width = 128
	}
	rng := rand.New(rand.NewPCG(11, 5))
	rows := make([][]int64, n) // by sender and receiver
	for i := range rows {
		for range n {
			rows[i] = append(rows[i], []int64{0, 1, 30, 33, rng.Int64N(300), most - rng.Int64N(300)}[rng.IntN(6)])
		}
	}
	rows[0][3], rows[2][1], rows[1][0] = most, most-1, 0
	area := int64(0) // of the rank with the most rows
	for r := range n {
		var out, in int64
		for p := range n {
			out, in = out+rows[r][p], in+rows[p][r]
		}
		area = max(area, out*width, in*width)
	}
	x, y, z := rt.C(0, rt.F32, area), rt.C(4*area, rt.F32, area), rt.C(8*area, rt.F32, area)
	m := &rt.Module{Name: "m", World: n, Arena: 12 * area, Streams: []string{"compute", "comm"}, Events: 2,
		Inputs:  []rt.Param{{Name: "x", Tensors: rt.Ts{x}}, {Name: "y", Tensors: rt.Ts{y}}, {Name: "z", Tensors: rt.Ts{z}}},
		Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}, {Name: "z", Tensors: rt.Ts{z}}}}
	program := func(me int) func(*rt.Exec) {
		send, recv := rows[me], make([]int64, n)
		var out, in int64
		for r := range n {
			recv[r] = rows[r][me]
			out, in = out+send[r], in+recv[r]
		}
		return func(e *rt.Exec) {
			e.Record("compute", 0)
			e.Wait("comm", 0)
			there := rt.Ts{rt.C(y.Off, rt.F32, in, width)}
			e.At("dispatch").AllToAll("comm", "world", [][]int64{send}, [][]int64{recv}, there, rt.Ts{rt.C(x.Off, rt.F32, out, width)})
			e.At("combine").AllToAll("comm", "world", [][]int64{recv}, [][]int64{send}, rt.Ts{rt.C(z.Off, rt.F32, out, width)}, there)
			e.Record("comm", 1)
			e.Wait("compute", 1)
		}
	}
	input := func(rank int) []rt.Value {
		b := make([]byte, x.Bytes())
		fill(rt.F32, rand.New(rand.NewPCG(7, uint64(rank))), b)
		zeros := rt.Value{DType: rt.F32, Shape: x.Shape, Data: make([]byte, x.Bytes())}
		return []rt.Value{{DType: rt.F32, Shape: x.Shape, Data: b}, zeros, zeros}
	}
	want := make([][]rt.Value, n)
	cfg := rt.Config{Timeout: plenty}
	err := host.Local(t.Context(), n, cfg, host.Options{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) (err error) {
		me := r.Info().Rank
		want[me], err = rt.RunModule(ctx, r, m, program(me), input(me), rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	world(t, n, cfg, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		return alike(ctx, r, m, program(me), input, want[me], 3, func(*rt.Step) error { return nil })
	})
}

// Rows that are not row-major arrive as they were, also where a rank has one row only, of which nobody
// can tell the order.
func TestExchangeOfStridedRows(t *testing.T) {
	const n = 2
	send, receive := [n][]int64{{1, 2}, {0, 2}}, [n][]int64{{1, 0}, {2, 2}}
	cfg := rt.Config{Timeout: plenty, UserBytes: 1 << 16}
	exchange := func(got *[n][]byte) func(ctx context.Context, r *rt.Rank) error {
		return func(ctx context.Context, r *rt.Rank) error {
			me := r.Info().Rank
			rows := func(off, rows int64) rt.Tensor {
				return r.User(rt.S(off, rt.F32, rt.Dims{rows, 4, 8}, rt.Dims{32, 1, 4}))
			}
			in, out := rows(0, send[me][0]+send[me][1]), rows(8192, receive[me][0]+receive[me][1])
			var data []byte
			for i := range uint32(in.NumElems()) {
				data = binary.LittleEndian.AppendUint32(data, uint32(1000*(me+1))+i)
			}
			if err := r.Upload(in, data); err != nil {
				return err
			}
			w, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllToAll, Group: "world", InSplits: [][]int64{send[me]}, OutSplits: [][]int64{receive[me]}, Ins: rt.Ts{in}, Outs: rt.Ts{out}})
			if err == nil {
				err = w.Wait(ctx)
			}
			if err == nil {
				got[me], err = r.Download(out)
			}
			return err
		}
	}
	var want, got [n][]byte
	if err := host.Local(t.Context(), n, cfg, host.Options{}, nil, exchange(&want)); err != nil {
		t.Fatal(err)
	}
	world(t, n, cfg, nil, exchange(&got))
	for r := range got {
		if !bytes.Equal(got[r], want[r]) {
			t.Errorf("rank %d: got %v, want %v", r, got[r], want[r])
		}
	}
}
