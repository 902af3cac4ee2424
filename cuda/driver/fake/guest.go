//go:build linux

package fake

// guestCopy copies this block's units of all segments; a last unit may be shorter.
func (b *block) guestCopy() error {
	for i := b.bid; i < b.a.Units; i += b.grid {
		seg, off := b.a.Find(i, 16)
		s := b.a.Segs[seg]
		b.store(seg, s.Dst, off, 16, b.load(seg, s.Src, off, 16))
	}
	return nil
}
