package device

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/cuda/device/internal/callkey"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Ranks of a group whose steps differ would wait for each other until time is up, and
// each would name another one as missing. So before a step is made ready the ranks
// compare what they have collected for each group, and in which loops and branches it stands:
// all but splits, which may differ. Ranks
// of other groups, and of other subgroups of the same one, may do something else. They also
// tell each other which collectives overlap with compute, and agree on the forms, and
// where they have the results of transfers between stages.

// addDigest adds a collective to what is compared.
func (r *recording) addDigest(g *group, c *rt.Collective) {
	if len(g.ranks) < 2 {
		return
	}
	h := r.sums[g]
	if h == nil {
		h = sha256.New()
		r.sums[g] = h
	}
	h.Write(callkey.Compared(nil, c, r.nested))
}

// The form of each collective, as ranks say it.
const (
	formAlone      = '.'
	formOverlapped = '+'
	formWithin     = '*'
)

// summary is what this rank has collected: for each group a digest, a character for each
// collective whose form is open, and where the results of those that tell begin; empty for none.
func (r *recording) summary() string {
	var parts []string
	for _, g := range r.d.table.Load().groups {
		var b []byte
		if h := r.sums[g]; h != nil {
			b = hex.AppendEncode(b, h.Sum(nil))
		}
		b = append(b, '/')
		for _, c := range r.open[g] {
			form := byte(formAlone)
			switch {
			case c.overlapped:
				form = formOverlapped
			case c.within != nil:
				form = formWithin
			}
			b = append(b, form)
		}
		b = append(b, '/')
		for _, c := range r.open[g] {
			if c.exchangesAddresses() {
				for _, t := range c.c.Outs {
					lo, _, _ := t.Span()
					b = append(strconv.AppendInt(b, lo, 10), ',')
				}
			}
		}
		parts = append(parts, string(b))
	}
	return strings.Join(parts, " ")
}

// agree compares with the other ranks, and takes over which collectives overlap with compute.
func (d *Device) agree(ctx context.Context, r *recording) error {
	own := r.summary()
	texts, err := d.chosen(ctx, own, r.whyNotConditional())
	if err != nil {
		return err
	}
	return d.alike("capture of", own, texts, func(g *group, pos int, open string, places []string) {
		for k, c := range r.open[g] {
			c.overlapped = c.overlapped || open[k] == formOverlapped
			if c.exchangesAddresses() {
				places = c.takeAddresses(pos, places)
			}
			if open[k] != formWithin {
				c.within = nil
			}
		}
	})
}

// alike compares what the ranks have collected, op says for what, and shows what each has said to take:
// the forms of collectives and places of results.
func (d *Device) alike(op, own string, texts []string, take func(g *group, pos int, forms string, places []string)) error {
	mine := strings.Split(own, " ")
	for i, g := range d.table.Load().groups {
		digest, forms, dsts := parseSummary(mine[i])
		for pos, peer := range g.ranks {
			if peer >= len(texts) {
				continue
			}
			theirs := strings.Split(texts[peer], " ")
			said := ""
			if len(theirs) == len(mine) {
				said = theirs[i]
			}
			other, open, places := parseSummary(said)
			if other != digest || len(open) != len(forms) || len(places) != len(dsts) {
				return &rt.MismatchError{Op: fmt.Sprintf("%s collectives on %q", op, g.name), What: "calls or their sizes", Rank: d.spec.Rank, Peer: peer, RankValue: digestText(digest), PeerValue: digestText(other)}
			}
			take(g, pos, open, places)
		}
	}
	return nil
}

// parseSummary takes apart what a rank says of a group.
func parseSummary(s string) (digest, forms string, places []string) {
	digest, s, _ = strings.Cut(s, "/")
	forms, s, _ = strings.Cut(s, "/")
	return digest, forms, strings.Split(s, ",")
}

// takeAddresses takes where the rank at a place in the group has the results from what it has said, and
// gives the rest.
func (k *collective) takeAddresses(pos int, places []string) []string {
	if k.dsts == nil {
		k.dsts = make([][]int64, len(k.c.Outs))
	}
	for i := range k.dsts {
		if k.dsts[i] == nil {
			k.dsts[i] = make([]int64, len(k.g.ranks))
		}
		k.dsts[i][pos], _ = strconv.ParseInt(places[i], 10, 64) // written by the same code
	}
	return places[len(k.dsts):]
}

func digestText(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// compare waits for all ranks of the world, and gives a text of each. It ends when the
// world breaks, or the device is closed.
func (d *Device) compare(ctx context.Context, text string) ([]string, error) {
	ctx, free := d.life.Bound(ctx)
	defer free()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-d.broken.Done():
			cancel(d.failure())
		case <-ctx.Done():
		}
	}()
	parts, err := d.spec.Job.Exchange(ctx, rendezvous.Call{Op: "barrier of the devices", Data: []byte(text)})
	if failed := d.failure(); err != nil && failed != nil {
		return nil, failed
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = string(p.Data)
	}
	return texts, err
}

// chosen is compare, to which each rank brings why it cannot choose by itself in the step: what
// one of them cannot do, none does.
func (d *Device) chosen(ctx context.Context, text string, why error) ([]string, error) {
	if why != nil {
		text += "\n" + why.Error()
	}
	texts, err := d.compare(ctx, text)
	if err != nil {
		return nil, joinError(&d.spec, err)
	}
	for rank := range texts {
		var why string
		if texts[rank], why, _ = strings.Cut(texts[rank], "\n"); why != "" {
			return nil, &rt.ControlFlowError{Rank: rank, Reason: why}
		}
	}
	return texts, nil
}

// barrier is compare with nothing to say.
func (d *Device) barrier(ctx context.Context) error {
	_, err := d.compare(ctx, "")
	return err
}

// barrierAfter is a barrier to which a rank brings what it failed with: then all fail.
func (d *Device) barrierAfter(ctx context.Context, err error) error {
	if err != nil {
		err = joinError(&d.spec, err)
		d.spec.Job.Cancel(err)
		return err
	}
	return joinError(&d.spec, d.barrier(ctx))
}
