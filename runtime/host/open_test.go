package host

import (
	"errors"
	"strings"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

func TestFits(t *testing.T) {
	own := []byte(`{"pad":64,"epoch":3}`)
	for _, c := range []struct {
		host, extra string
		want        string
		is          error
	}{
		{"a", string(own), "", nil},
		{"b", string(own), "", nil},
		{"a", "?", "rank 1 is no host device", nil},
		{"a", `{"pad":64,"epoch":4}`, "signal pads differ", rt.ErrMismatch},
	} {
		m := &rt.Membership{Records: []rt.Record{{Host: "a", Extra: own}, {Host: c.host, Extra: []byte(c.extra)}}}
		err := fits(&rt.Spec{Rank: 0, World: 2}, m)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
