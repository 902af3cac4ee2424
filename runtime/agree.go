package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// How the ranks that have joined agree: each brings a record, and the digest of its
// programs and the bytes of its arena must be those of all others. Every rank sees what
// all have brought, so a disagreement is found by everyone without another message;
// only the texts of programs that differ are exchanged on top, in order to name the
// first line.

// Record is what one rank tells the others about itself.
type Record struct {
	Host  string `json:"host"` // ranks that have the same can share memory: see Env.Host
	PID   int    `json:"pid"`
	Extra []byte `json:"extra,omitempty"` // the device's own
}

// Membership is the outcome of a rendezvous.
type Membership struct {
	Nonce   string   // of this world
	Records []Record // by rank
}

// agreeing is what one rank brings to a rendezvous.
type agreeing struct {
	op     string // what they agree on, empty: a rendezvous alone
	digest string // of the programs
	text   string // of the programs, for naming the first difference
	arena  int64
	host   string // declared, or empty
}

// join exchanges records, and compares.
func (a *agreeing) join(ctx context.Context, g *rendezvous.Group, extra []byte) (*Membership, error) {
	rec, err := json.Marshal(Record{Host: cmp.Or(a.host, hostID()), PID: os.Getpid(), Extra: extra})
	if err != nil {
		return nil, err
	}
	a.op = "rendezvous"
	parts, err := a.exchange(ctx, g, rec, Fact{What: rendezvous.Programs, Value: a.digest}, Fact{What: "arena bytes", Value: strconv.FormatInt(a.arena, 10)})
	if err != nil {
		return nil, err
	}
	m := &Membership{Nonce: g.Nonce(), Records: make([]Record, len(parts))}
	for r, p := range parts {
		if err := json.Unmarshal(p.Data, &m.Records[r]); err != nil {
			return nil, &RendezvousError{Rank: g.Rank(), Reason: fmt.Sprintf("record of rank %d is malformed", r), Err: err}
		}
	}
	return m, nil
}

// exchange compares what has to be the same. Programs stand before what follows from them, since
// their texts say why it differs, and behind what says that there are any.
func (a *agreeing) exchange(ctx context.Context, g *rendezvous.Group, data []byte, same ...Fact) ([]rendezvous.Part, error) {
	parts, err := g.Exchange(ctx, rendezvous.Call{Op: a.op, Data: data, Facts: same})
	var wrong *MismatchError
	if errors.As(err, &wrong) && wrong.What == rendezvous.Programs && a.text != "" {
		return nil, a.compare(ctx, g, wrong)
	}
	return parts, err
}

// Fact is something that all ranks must say alike.
type Fact = rendezvous.Fact

// mostText bounds the texts of programs that are compared.
const mostText = 64 << 20

// compare finds the first line of the programs' texts that differs. All ranks come here
// together.
func (a *agreeing) compare(ctx context.Context, g *rendezvous.Group, e *MismatchError) error {
	const piece = rendezvous.MaxData / 2
	var other strings.Builder
	for at := 0; at < mostText; at += piece {
		lo, hi := min(at, len(a.text)), min(at+piece, len(a.text))
		parts, err := g.Exchange(ctx, rendezvous.Call{Op: e.Op, Data: []byte(a.text[lo:hi])})
		if err != nil {
			return e
		}
		more := false
		for r, p := range parts {
			more = more || len(p.Data) == piece
			if r == e.Peer {
				other.Write(p.Data)
			}
		}
		if !more {
			break
		}
	}
	e.Line, e.RankLine, e.PeerLine = firstDifference(a.text[:min(len(a.text), mostText)], other.String())
	return e
}

// consequences are the lines of a program's text that follow from its signature and
// instructions: where its memory is. They stand before what they follow from, so
// that the first of them to differ says nothing about why.
var consequences = []string{"events ", "arena ", "buffer "}

// firstDifference returns the first line of a, counted from 1, that differs from b's,
// and that line of each; 0 if they are equal. Consequences count only where nothing
// else differs.
func firstDifference(a, b string) (line int, la, lb string) {
	if line, la, lb = differ(a, b, consequences); line == 0 {
		line, la, lb = differ(a, b, nil)
	}
	return line, la, lb
}

// differ is firstDifference without the lines that begin with one of skip. Line is
// one beyond the last line of a where b only goes on.
func differ(a, b string, skip []string) (line int, la, lb string) {
	const keep = 300 // bytes of a line worth showing
	next := func(text *string) (l string, lines int) {
		for *text != "" {
			l, *text, _ = strings.Cut(*text, "\n")
			lines++
			if !slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(l, s) }) {
				return l, lines
			}
		}
		return "", lines + 1
	}
	for a != "" || b != "" {
		var n int
		la, n = next(&a)
		line += n
		lb, _ = next(&b)
		if la != lb {
			return line, la[:min(len(la), keep)], lb[:min(len(lb), keep)]
		}
	}
	return 0, "", ""
}

// beforeFirst returns a failure to join with the collective that comes first in
// the rank's programs, and so cannot run, after the word rendezvous: a reader of
// the message finds the place in the program where the ranks would have joined.
// Programs without a text (emitted code carries none) leave err as it is.
func beforeFirst(err error, mods []*Module, world int) error {
	var op *string // of a copy: ranks of one process may share the error
	named := err
	switch e := err.(type) {
	case *TimeoutError:
		c := *e
		op, named = &c.Op, &c
	case *PeerLostError:
		c := *e
		op, named = &c.Op, &c
	case *MismatchError:
		c := *e
		op, named = &c.Op, &c
	case *CanceledError:
		c := *e
		op, named = &c.Op, &c
	}
	if op == nil || *op != "rendezvous" {
		return err
	}
	if first := firstCollective(mods, world); first != "" {
		*op += " before " + first
	}
	return named
}

// firstCollective names the first collective of the first module that has one.
func firstCollective(mods []*Module, world int) string {
	for _, m := range mods {
		if m.Text == "" {
			if first := m.listing(world).first; first != "" {
				return first
			}
			continue
		}
		p, err := program.Parse(m.Name, m.Text)
		if err != nil {
			continue // Join does not need the text either
		}
		for i := range p.Instrs {
			in := &p.Instrs[i]
			if op, ok := ParseCollOp(in.Op); ok && in.Kind == program.Collective && in.Group >= 0 {
				c := Collective{Op: op, Group: p.Groups[in.Group].Name, Label: in.Node}
				return c.Name()
			}
		}
	}
	return ""
}

// hostID names this machine, and the network namespace on it.
func hostID() string {
	if id, err := rendezvous.Machine(); err == nil {
		return id
	}
	h, _ := os.Hostname()
	return h
}
