package symm

import (
	"errors"
	"fmt"
	"sort"
)

// heap hands out offsets of a range, first fit. It is deterministic: the same
// calls give the same offsets, which is what makes an allocation symmetric.
type heap struct {
	size uint64
	used []span // by offset
}

type span struct{ at, bytes uint64 }

// ErrSymmetricFull means that the symmetric memory of a world has no room left.
var ErrSymmetricFull = errors.New("symmetric memory is full")

func (h *heap) reset(size uint64) { h.size, h.used = size, nil }

func (h *heap) alloc(bytes, align uint64) (uint64, error) {
	if align&(align-1) != 0 {
		return 0, Invalid("alignment", "%d is not a power of two", align)
	}
	align = max(align, 16)
	bytes = max(bytes, 1)
	at := uint64(0)
	for i := 0; ; i++ {
		at = (at + align - 1) &^ (align - 1)
		end := h.size
		if i < len(h.used) {
			end = h.used[i].at
		}
		if at <= end && bytes <= end-at {
			h.used = append(h.used, span{})
			copy(h.used[i+1:], h.used[i:])
			h.used[i] = span{at, bytes}
			return at, nil
		}
		if i == len(h.used) {
			return 0, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrSymmetricFull, bytes, h.inUse(), h.size)
		}
		at = h.used[i].at + h.used[i].bytes
	}
}

func (h *heap) free(at uint64) error {
	i := sort.Search(len(h.used), func(i int) bool { return h.used[i].at >= at })
	if i == len(h.used) || h.used[i].at != at {
		return fmt.Errorf("offset %#x was not allocated, or was freed before", at)
	}
	h.used = append(h.used[:i], h.used[i+1:]...)
	return nil
}

func (h *heap) inUse() uint64 {
	var n uint64
	for _, s := range h.used {
		n += s.bytes
	}
	return n
}
