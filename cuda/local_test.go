//go:build linux

package cuda

import (
	"encoding/binary"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/stall"
)

// localPTX has a kernel that waits until a word is not 0, and one that sets a word with 12 KiB of
// local memory for each thread, which it reads and writes where only that word says.
const localPTX = `.version 7.8
.target sm_80
.address_size 64
.visible .entry wait(.param .u64 at)
{
	.reg .u64 %a;
	.reg .u32 %v;
	.reg .pred %zero;
	ld.param.u64 %a, [at];
again:
	ld.volatile.global.u32 %v, [%a];
	setp.eq.u32 %zero, %v, 0;
	@%zero bra again;
	ret;
}
.visible .entry set(.param .u64 at)
{
	.local .align 4 .b8 buf[12288];
	.reg .u64 %a, %l;
	.reg .u32 %v;
	ld.param.u64 %a, [at];
	ld.volatile.global.u32 %v, [%a];
	mov.u64 %l, buf;
	mad.wide.u32 %l, %v, 4, %l;
	st.local.u32 [%l+8192], 7;
	ld.volatile.global.u32 %v, [%a];
	st.local.u32 [buf+8196], %v;
	mov.u64 %l, buf;
	mad.wide.u32 %l, %v, 4, %l;
	ld.local.u32 %v, [%l+8192];
	st.volatile.global.u32 [%a], %v;
	ret;
}
`

// A kernel with more local memory than a context has at first does not wait for one that waits
// for a peer.
func TestLocalMemory(t *testing.T) {
	if !*onGPU {
		t.Skip("is about the driver's local memory")
	}
	d := newDriverOf(t, 1)
	c := got(d.CtxRetain(0))(t)
	defer d.CtxRelease(0)
	host, dev, err := d.HostAlloc(c, 256)
	if err != nil {
		t.Fatal(err)
	}
	defer d.HostFree(c, host)
	m := got(d.ModuleLoad(c, []byte(localPTX)))(t)
	defer d.ModuleUnload(c, m)
	launch := func(name string, at driver.Ptr) func() {
		f := got(d.Function(c, m, name))(t)
		s := got(d.StreamCreate(c))(t)
		t.Cleanup(func() { d.StreamDestroy(c, s) })
		return func() {
			if err := d.Launch(c, s, f, 1, 1, 0, binary.LittleEndian.AppendUint64(nil, uint64(at))); err != nil {
				t.Error(err)
			}
		}
	}
	wait, set := launch("wait", dev), launch("set", dev+128)
	wait()
	launched := make(chan struct{})
	go func() { // which the driver blocks, too
		set()
		close(launched)
	}()
	if !stall.Until(looks, func() bool { return hostmem.Load32(host+128) == 7 }) {
		t.Error("the kernel waits for one that runs")
	}
	hostmem.Store32(host, 1)
	<-launched
	if err := d.CtxSync(c); err != nil {
		t.Error(err)
	}
}
