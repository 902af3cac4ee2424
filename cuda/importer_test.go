//go:build linux

package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

const toImport = "tensor 1"

// importer exports to so many importers, of which one has come on its errand, and has not
// heard the answer.
func importer(ctx context.Context, t *testing.T, m *rendezvous.Job, s *symm.Shared, b symm.Buffer, n int, e errandT) (*rendezvous.Conn, chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Export(ctx, m, b, n) }()
	conn := got(rendezvous.Dial(t.Context(), m))(t)
	if err := conn.Send(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return conn, done
}

// TestImporterThatFails exports to a process that proves who it is and then says nothing,
// or nonsense: the exporter says how long it waited, or what it heard, and not that the
// process has ended.
func TestImporterThatFails(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("both sides are in one process")
	}
	r := lone(t, newDriverOf(t, 1), 0)
	s := got(r.NewShared(64))(t)
	defer s.Close()
	b := got(s.Buffer(0, symm.U8, 64))(t)
	for name, says := range map[string]any{"nothing": nil, "nonsense": "xyz"} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			conn, done := importer(ctx, t, rendezvous.NewJob(""), s, b, 1, errandT{toImport, got(rendezvous.Machine())(t)})
			defer conn.Close()
			if says == nil {
				end(context.DeadlineExceeded)
			} else if err := conn.Send(t.Context(), says); err != nil {
				t.Fatal(err)
			}
			err := <-done
			var late *rendezvous.TimeoutError
			var lost *symm.PeerLostError
			if says == nil && (!errors.As(err, &late) || late.Elapsed <= 0) {
				t.Errorf("got %v", err)
			}
			if says != nil && (err == nil || errors.As(err, &lost) || !strings.Contains(err.Error(), "cannot unmarshal")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSlowImporter has an importer that takes its time. The one behind it is served.
func TestSlowImporter(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("both sides are in one process")
	}
	r := lone(t, newDriverOf(t, 1), 0)
	s := got(r.NewShared(64))(t)
	defer s.Close()
	m := rendezvous.NewJob("")
	conn, done := importer(t.Context(), t, m, s, got(s.Buffer(0, symm.U8, 64))(t), 2, errandT{toImport, got(rendezvous.Machine())(t)})
	defer conn.Close()
	other, _, err := r.Import(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.Send(t.Context(), importedT{Used: true}), <-done, other.Close()); err != nil {
		t.Error(err)
	}
}

// Each driver call of an export and an import fails in turn: either says so, and nothing
// is left.
func TestTensorEveryCallFails(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("the fake driver fails at will")
	}
	f := fake.New(2)
	a, b := lone(t, f, 0), lone(t, f, 1)
	clean := f.Leaks().String()
	f.FailCall(0, nil)
	if v, exp, imp := between(t.Context(), t, a, b); exp != nil || imp != nil || v != 3 {
		t.Fatal(exp, imp, v)
	}
	total := f.Calls()
	if total < 15 {
		t.Errorf("only %d calls", total)
	}
	for n := 1; n <= total; n++ {
		f.FailCall(n, errInjected)
		_, exp, imp := between(t.Context(), t, a, b)
		f.FailCall(0, nil)
		if !errors.Is(exp, errInjected) && !errors.Is(imp, errInjected) {
			t.Errorf("call %d of %d failed, the results are %v and %v", n, total, exp, imp)
		}
		if l := f.Leaks().String(); l != clean {
			t.Errorf("call %d of %d: not released: %s", n, total, l)
		}
	}
	if v, exp, imp := between(t.Context(), t, a, b); exp != nil || imp != nil || v != 3 {
		t.Error(exp, imp, v)
	}
}
