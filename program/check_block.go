package program

// bracket lists the accesses of a line that begins, divides or ends a block; see check.go for
// why these.
func (c *checker) bracket(b *Block, i int) error {
	in, head := &c.p.Instrs[i], &c.p.Instrs[b.At]
	each := func(ts []Tensor, write bool) error {
		for k := range ts {
			w, err := c.p.window(&ts[k])
			if err != nil {
				return err
			}
			c.accs = append(c.accs, access{win: w, buffer: int32(ts[k].Buffer), instr: int32(b.At), pos: int32(i) + 1, operand: int32(k), write: write})
		}
		return nil
	}
	if err := each(in.Ins, false); err != nil {
		return err
	}
	kept := head.Outs
	switch {
	case in.Kind == Test, in.Kind == Case, i == b.At+1 && in.Kind == Branch:
		return nil // nothing has been written yet, or all of it is there
	case in.Kind == Branch:
		kept = nil
	}
	if err := each(head.Outs, false); err != nil {
		return err
	}
	if err := c.forget(b, i); err != nil {
		return err
	}
	return each(kept, true)
}

// forget makes what instructions of a block write count as gone at instruction i: of a loop all
// of them, of a case those before.
func (c *checker) forget(b *Block, i int) error {
	to := i
	if i == b.At {
		to = b.End
	}
	type place struct {
		lo, hi int64
		buffer int32
	}
	seen := map[place]bool{} // look-up only
	for k := b.At + 1; k < to; k++ {
		in := &c.p.Instrs[k]
		for n, t := range in.Written() {
			w, err := c.p.window(&t)
			if err != nil {
				return err
			}
			if at := (place{w.lo, w.hi, int32(t.Buffer)}); w.dense() && seen[at] {
				continue
			} else {
				seen[at] = true
			}
			c.accs = append(c.accs, access{win: w, buffer: int32(t.Buffer), instr: int32(k), pos: int32(i) + 1, operand: int32(n), write: true, gone: true})
		}
	}
	return nil
}
