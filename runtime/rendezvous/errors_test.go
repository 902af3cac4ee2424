package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestErrorsTravel(t *testing.T) {
	for _, e := range []error{
		&TimeoutError{Op: `all_reduce on "tp"`, Rank: 1, Peer: 2, Missing: []int{2, 3}, Group: "tp", Elapsed: time.Second, Detail: "d"},
		&PeerLostError{Op: "x", Rank: 1, Peer: 2, Group: "g", Left: true},
		&MismatchError{Op: "rendezvous", What: Programs, Rank: 1, Peer: 2, RankValue: "a", PeerValue: "b", Line: 3, RankLine: "x", PeerLine: "y"},
		&MismatchError{Op: "x", What: "operand bytes", Rank: 1, Peer: 2, RankValue: "3", PeerValue: "4", Group: "g"},
		errors.New("anything"),
	} {
		got := DecodeError(EncodeError(&CanceledError{Rank: 1, Origin: 1, Err: e}, 1000))
		if !strings.Contains(got.Error(), e.Error()) {
			t.Errorf("%v became %v", e, got)
		}
		for _, kind := range []error{ErrTimeout, ErrPeerLost, ErrMismatch, context.DeadlineExceeded} {
			if errors.Is(e, kind) != errors.Is(got, kind) {
				t.Errorf("%v: is %v: %v and %v", e, kind, errors.Is(e, kind), errors.Is(got, kind))
			}
		}
	}
	if err := DecodeError(EncodeError(context.Canceled, 1000)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context became %v", err)
	}
	long := EncodeError(errors.New(strings.Repeat("\x00é", 5000)), 2048)
	if len(long) > 2048 || !strings.Contains(DecodeError(long).Error(), "é") {
		t.Errorf("a long text takes %d bytes: %v", len(long), DecodeError(long))
	}
	DecodeError([]byte("{")) // must not panic
}

func ExampleMismatchError() {
	fmt.Println(&MismatchError{Op: `rendezvous before all_reduce on "tp" (sum)`, What: Programs, Rank: 0, Peer: 2, RankValue: "8c1f", PeerValue: "77ab", Line: 41,
		RankLine: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])", PeerLine: "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])"})
	// Output: rank 0: rendezvous before all_reduce on "tp" (sum): ranks 0 and 2 run different programs: digests 8c1f and 77ab; first difference at line 41: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 0, "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 2
}
