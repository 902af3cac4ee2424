package device

import (
	"errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Mark implements runtime.Capturer.
func (d *Device) Mark(s rt.Stream) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	if d.rec == nil {
		return d.call("mark", errors.New("only a step that is being collected has marks"))
	}
	ev, err := d.own(d.rec.life).Event(true)
	if err != nil {
		return d.driver("mark", err)
	}
	d.rec.marks = append(d.rec.marks, ev)
	d.rec.add(item{st: st, mark: ev})
	return nil
}

// Marks implements runtime.Captured.
func (c *captured) Marks() ([]float64, error) {
	d := c.d
	if err := c.enter("marks"); err != nil {
		return nil, err
	}
	defer c.r.life.Done()
	if !c.ran {
		return nil, d.call("marks", rt.ErrNotReplayed)
	}
	var ms []float64
	for _, ev := range c.r.marks {
		x, err := d.drv.EventElapsed(d.rank.Ctx, c.r.marks[0], ev)
		if err != nil {
			return nil, d.driver("marks", err)
		}
		ms = append(ms, float64(x))
	}
	return ms, nil
}
