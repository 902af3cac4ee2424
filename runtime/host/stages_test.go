package host_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
)

// Two stages of two ranks each: the first sends %x up and gets its double back, the second one
// has other streams, and its tensors at other places.
const stagesText = `program @first world 4 on [[0, 1]]
group @up = [[0, 2], [1, 3]]
group @down = [[0, 2], [1, 3]]
group @near = [[0, 1]]
stream @compute
stream @comm.up on @up
stream @comm.down on @down
stream @comm.near on @near
events 4
arena 4096
buffer %x at 0 size 512
buffer %none at 512 size 512
buffer %y at 1024 size 512
buffer %sum at 1536 size 512
input x {data} = %x: f32[8]
output sum = %sum: f32[8]
body
@compute record 0
@comm.up wait 0
@comm.up collective_permute on @up (%x: f32[8]) -> (%none: f32[8]) {pairs=[0, 1]}
@comm.up record 1
@comm.down wait 1
@comm.down collective_permute on @down (%x: f32[8]) -> (%y: f32[8]) {pairs=[1, 0]}
@comm.down record 2
@comm.near wait 2
@comm.near all_reduce on @near (%y: f32[8]) -> (%sum: f32[8]) {reduce="sum"}
@comm.near record 3
@compute wait 3
program @second world 4 on [[2, 3]]
group @up = [[0, 2], [1, 3]]
group @down = [[0, 2], [1, 3]]
group @near = [[0, 1]]
stream @compute
stream @comm.down on @down
stream @comm.up on @up
events 3
arena 4096
buffer %idle at 3072 size 512
buffer %h at 2560 size 512
buffer %hh at 1024 size 512
buffer %none at 0 size 512
input idle {data} = %idle: f32[8]
body
@compute record 0
@comm.up wait 0
@comm.up collective_permute on @up (%idle: f32[8]) -> (%h: f32[8]) {pairs=[0, 1]}
@comm.up record 1
@compute wait 1
@compute launch add (%h: f32[8], %h: f32[8]) -> (%hh: f32[8])
@compute record 2
@comm.down wait 2
@comm.down collective_permute on @down (%hh: f32[8]) -> (%none: f32[8]) {pairs=[1, 0]}
@comm.down record 0
@compute wait 0
`

const envStages = "MLP_STAGES" // run stages instead

// childStages runs the stage of a rank some times, each with other numbers.
func childStages(ctx context.Context) error {
	s, err := program.ParseStages("stages", stagesText)
	if err != nil {
		return err
	}
	mods, err := rt.ModulesOf("stages", s)
	if err != nil {
		return err
	}
	place := 0
	if rank := os.Getenv("RANK"); rank == "2" || rank == "3" {
		place = 1
	}
	r, err := rt.Join(ctx, host.Opener(host.Options{}), rt.Config{Timeout: time.Hour}, mods[place])
	if err != nil {
		return err
	}
	rank := r.Info().Rank
	for step := range 50 {
		x := make([]float64, 8)
		for i := range x {
			x[i] = float64(100*step + 10*rank + i)
		}
		out, err := rt.RunModule(ctx, r, mods[place], func(e *rt.Exec) { rt.Interpret(e, s[place]) }, []rt.Value{{DType: rt.F32, Shape: rt.Dims{8}, Data: bytesOf(rt.F32, x...)}}, rt.Options{})
		if err != nil {
			return err
		}
		if place == 1 {
			continue
		}
		want := make([]float64, 8)
		for i := range want {
			want[i] = float64(2 * (200*step + 10 + 2*i))
		}
		if got := numbersOf(rt.F32, out[0].Data); !slices.Equal(got, want) {
			return fmt.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
	if err := r.Barrier(ctx); err != nil {
		return err
	}
	return r.Close()
}

// TestStagesOfProcesses runs stages on processes.
func TestStagesOfProcesses(t *testing.T) {
	leak.Check(t)
	s, err := program.ParseStages("stages", stagesText)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s {
		if err := program.Check(p); err != nil {
			t.Error(err)
		}
	}
	if s.String() != stagesText {
		t.Error("the text of the stages is not what is printed")
	}
	var out output
	spec := mlpSpec(&out, 0, time.Hour, time.Hour)
	spec.Env = append(spec.Env, envStages+"=1")
	if err := launch.Run(t.Context(), spec); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "FAILED") {
		t.Error(out.String())
	}
}
