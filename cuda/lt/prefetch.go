package lt

import (
	_ "embed"
	"encoding/binary"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

//go:embed prefetch.cu
var prefetchSource string

// prefetchBlocks spread the requests over enough multiprocessors that their units for
// bulk copies are no limit.
const prefetchBlocks = 16

// loadPrefetch compiles and loads the kernel of prefetch.cu once for the handle.
func (h *Handle) loadPrefetch() error {
	if h.fetch.host = h.lib.lib.fetch(); h.fetch.host != 0 || h.fetch.module != 0 || h.opts.Compile == nil {
		return nil
	}
	image, err := h.opts.Compile("concert_prefetch.cu", prefetchSource)
	if err != nil {
		return err
	}
	m, err := h.lib.drv.ModuleLoad(h.ctx, image)
	if err != nil {
		return err
	}
	h.fetch.module = m
	h.fetch.f, err = h.lib.drv.Function(h.ctx, m, "concert_prefetch")
	return err
}

// addPrefetch adds a launch that brings up to limit bytes of memory into the cache,
// from each range in proportion. It may run at any time.
func (h *Handle) addPrefetch(cmds *driver.Commands, s driver.Stream, list []library.Memory, limit uint64) {
	total := uint64(0)
	for _, m := range list {
		total += m.Bytes
	}
	if h.fetch == (kernel{}) || total == 0 || limit == 0 {
		return
	}
	if h.fetch.host != 0 {
		cmds.Call(s, h.fetch.host, uint64(list[0].At), min(total, limit))
		return
	}
	var b []byte
	for i := range 4 {
		var at, n uint64
		if i < len(list) {
			at, n = uint64(list[i].At)&^15, list[i].Bytes
			if total > limit {
				n = n * (limit >> 10) / (total>>10 + 1)
			}
		}
		b = binary.LittleEndian.AppendUint64(b, at)
		b = binary.LittleEndian.AppendUint64(b, n&^15)
	}
	cmds.Launch(s, h.fetch.f, prefetchBlocks, 64, 0, b)
}
