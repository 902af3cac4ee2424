package device

import (
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// entriesOf lists the collectives of a step, and says which is the last.
func entriesOf(items []item) (list []progress.Entry, last *progress.Call) {
	for i := range items {
		p := items[i].plan
		if p == nil || p.group == nil || p.group.log == nil {
			continue
		}
		at := slices.IndexFunc(list, func(e progress.Entry) bool { return e.Log == p.group.log })
		if at < 0 {
			at, list = len(list), append(list, progress.Entry{Log: p.group.log})
		}
		list[at].Names = append(list[at].Names, p.calls...)
		last = &p.calls[0]
	}
	return list, last
}

// enqueues counts the collectives of a step, or of one plan.
func (d *Device) enqueues(list []progress.Entry, last *progress.Call) {
	if last != nil {
		d.latest.Store(last)
	}
	for _, e := range list {
		e.Log.Add(e.Names)
	}
}

// logs are those of the device's groups.
func (d *Device) logs() (out []*progress.Log) {
	for _, g := range d.table.Load().groups {
		if g.log != nil {
			out = append(out, g.log)
		}
	}
	return out
}

// waiting says, in errors of a wait, which collective this rank enqueued last.
func (d *Device) waiting() rendezvous.Where {
	w := rendezvous.Where{Op: "waiting", Rank: d.spec.Rank}
	if k := d.latest.Load(); k != nil {
		w.Op, w.Group = k.Name, k.Group
	}
	return w
}

// missed is what the other ranks' notes say, as an error; nil if there is nothing.
func (d *Device) missed() error { return d.link.Missed(d.waiting()) }

// late is the error of a wait that took too long.
func (d *Device) late(waited time.Duration) error { return d.link.Late(d.waiting(), waited) }
