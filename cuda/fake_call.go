//go:build linux

package cuda

// RegisterCall gives a function that Commands.Call accepts on this driver. run is
// called in stream order, in replays of a captured graph too, with a copy of the
// words. Device addresses are readable through FakeBytes. An error it returns is
// the stream's from then on.
func (f *Fake) RegisterCall(run func(args []uint64) error) CFunc {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callbacks = append(f.callbacks, run)
	return CFunc(len(f.callbacks))
}

func (f *Fake) callback(s Stream, fn CFunc, args []uint64) error {
	f.mu.Lock()
	if fn == 0 || int(fn) > len(f.callbacks) {
		f.mu.Unlock()
		return invalid("called function", "%d was not registered", fn)
	}
	run := f.callbacks[fn-1]
	f.mu.Unlock()
	args = append([]uint64(nil), args...)
	return f.work("called function", s, func() error {
		f.pause()
		return run(args)
	})
}

// FakeBytes views n bytes of a Fake's memory. Use it only inside functions that
// RegisterCall took, or when no stream writes there; the view ends with the
// allocation.
func FakeBytes(p Ptr, n uint64) []byte { return bytesAt(p, n) }
