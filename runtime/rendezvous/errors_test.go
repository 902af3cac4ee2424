package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// What rank 0 finds makes rank 1 stop, which tells rank 0: that is not canceled by itself.
func TestErrorsToldBack(t *testing.T) {
	zero, one := Where{Op: "waiting", Rank: 0, Group: "h"}, Where{Op: "y", Rank: 1, Group: "h"}
	for _, e := range []error{
		&TimeoutError{Op: "x", Rank: 0, Peer: 1, Missing: []int{1}, Group: "g", Step: 2, Elapsed: time.Second, Detail: "d"},
		&PeerLostError{Op: "x", Rank: 0, Peer: 1, Group: "g", Left: true},
		&MismatchError{Op: "x", What: "operand bytes", Rank: 0, Peer: 1, RankValue: "3", PeerValue: "4", Group: "g"},
	} {
		theirs := one.Adopt(DecodeError(EncodeError(e, maxReason)), 0)
		if c, ok := theirs.(*CanceledError); !ok || c.Rank != 1 || c.Origin != 0 || c.Err.Error() != e.Error() {
			t.Errorf("rank 1: %v", theirs)
		}
		back := DecodeError(EncodeError(theirs, maxReason))
		if got := zero.Adopt(back, 1); !reflect.DeepEqual(got, e) {
			t.Errorf("rank 0: %+v became %v", e, got)
		}
		if c, ok := (Where{Rank: 2}).Adopt(back, 1).(*CanceledError); !ok || c.Rank != 2 || c.Origin != 0 {
			t.Errorf("rank 2: %v", c)
		}
	}
	for _, given := range []*CanceledError{
		{Rank: 0, Origin: 0, Err: errors.New("stop")},             // by its own caller
		{Rank: 0, Origin: 0, Err: &TimeoutError{Rank: 2}},         // by its own caller, with another's error
		{Rank: 1, Origin: 1, Err: &TimeoutError{Op: "elsewhere"}}, // by the caller of rank 1, with an error of a rank 0
	} {
		if c, ok := zero.Adopt(given, 1).(*CanceledError); !ok || c.Rank != 0 || c.Origin != given.Origin || c.Err != given.Err {
			t.Errorf("rank 0: %v became %v", given, c)
		}
	}
}

func ExampleMismatchError() {
	fmt.Println(&MismatchError{Op: `rendezvous before all_reduce on "tp" (sum)`, What: Programs, Rank: 0, Peer: 2, RankValue: "8c1f", PeerValue: "77ab", Line: 41,
		RankLine: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])", PeerLine: "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])"})
	// Output: rank 0: rendezvous before all_reduce on "tp" (sum): ranks 0 and 2 run different programs: digests 8c1f and 77ab; first difference at line 41: "@compute launch relu (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 0, "@compute launch tanh (%h: f32[8,4]) -> (%a: f32[8,4])" on rank 2
}
