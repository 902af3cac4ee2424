package device

import "github.com/seed-ee968945/concert/cuda/driver"

// part is commands, the call of a Go function between commands, or a conditional node.
type part struct {
	cmds *driver.Commands
	call *plan
	st   *stream
	node *branching
}

// section makes parts of items that follow each other without a bracket. All streams that it
// uses begin after what is in the main one, and the main one goes on after all of them have
// ended.
type section struct {
	r        *recording
	t        *trace
	parts    []part
	used     []*stream
	deferred deferred
	recorded map[driver.Event]bool
}

func (r *recording) section(t *trace) *section {
	s := &section{r: r, t: t, deferred: deferred{}, recorded: map[driver.Event]bool{}}
	s.commands().Record(r.main.h, r.fork)
	return s
}

// commands is the buffer at the end.
func (s *section) commands() *driver.Commands {
	if n := len(s.parts); n > 0 && s.parts[n-1].cmds != nil {
		return s.parts[n-1].cmds
	}
	c := &driver.Commands{}
	s.parts = append(s.parts, part{cmds: c})
	return c
}

// on is the buffer for commands on a stream, which joins the section.
func (s *section) on(st *stream) *driver.Commands {
	c := s.commands()
	if st == s.r.main {
		return c
	}
	for _, u := range s.used {
		if u == st {
			return c
		}
	}
	s.used = append(s.used, st)
	c.Wait(st.h, s.r.fork)
	return c
}

// add adds item k.
func (s *section) add(k int) {
	r := s.r
	i := &r.items[k]
	c := s.on(i.st)
	var call tracedCall
	if i.plan != nil && s.t != nil {
		call = s.t.next()
		c.Record(i.st.h, call.from)
	}
	p := i.plan
	switch {
	case i.record != 0:
		if i.turn {
			s.deferred.join(i.st, c)
		}
		c.Record(s.deferred.end(i.st), i.record)
		s.recorded[i.record] = true
	case i.wait != 0:
		if s.recorded[i.wait] { // what stands before the section has ended
			s.deferred.wait(i.st, i.wait, c)
		}
	case i.mark != 0 && r.graph:
		c.Mark(s.deferred.end(i.st), i.mark)
	case i.mark != 0:
		c.Record(s.deferred.end(i.st), i.mark)
	case i.plan.call != nil:
		s.deferred.join(i.st, c)
		s.parts = append(s.parts, part{call: i.plan, st: i.st})
	default:
		if log := r.d.opts.Log; log != nil && p.group != nil && s.t == nil {
			log.Info("collective", "rank", r.d.spec.Rank, "name", p.name, "form", p.algo, "beside", i.coll != nil && i.coll.overlapped)
		}
		cmds := &p.cmds
		if e, ok := r.early(k); ok {
			cmds = e
		}
		if ahead := s.deferred.add(i.st, p, c); ahead != nil {
			cmds = ahead
		}
		c.AppendOn(i.st.h, cmds)
	}
	if p != nil && s.t != nil {
		s.commands().Record(s.deferred.end(i.st), call.to)
		s.t.made(call, i.st, p)
	}
}

// end joins all streams into the main one.
func (s *section) end() []part {
	main := s.r.main.h
	s.deferred.join(s.r.main, s.commands())
	for _, u := range s.used {
		s.deferred.join(u, s.commands())
		s.commands().Record(u.h, u.join)
		s.commands().Wait(main, u.join)
	}
	return s.parts
}
