package host

import (
	"errors"
	"strings"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

func TestOneHost(t *testing.T) {
	records := func(host string, pid int) *rt.Meeting {
		return &rt.Meeting{Records: []rt.Record{{Host: "a", PID: 7}, {Rank: 1, Host: host, PID: pid}}}
	}
	for _, c := range []struct {
		m          *rt.Meeting
		oneProcess bool
		want       string
	}{
		{records("a", 7), true, ""},
		{records("a", 8), false, ""},
		{records("b", 8), false, "rank 1 is on another"},
		{records("a", 8), true, "rank 1 is another process (8)"},
	} {
		err := oneHost(rt.Spec{Rank: 0, World: 2}, c.m, c.oneProcess)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, rt.ErrUnsupported)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
