//go:build linux

package device_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A step by hand whose loops and branches are left in the middle, or tested twice, is refused.
func TestBrokenBrackets(t *testing.T) {
	fakeOnly(t)
	n := rt.C(0, rt.I64)
	for _, c := range []struct {
		name, want string
		step       func(*rt.Exec)
	}{
		{"left before its test", "nothing follows its last loop", func(x *rt.Exec) {
			for l := x.Loop(); l.Next(); {
				break
			}
		}},
		{"left behind its test", "nothing follows its last test", func(x *rt.Exec) {
			for l := x.Loop(); l.Next() && l.Holds(n); {
				break
			}
		}},
		{"no test", "end: follows loop", func(x *rt.Exec) {
			for l := x.Loop(); l.Next(); {
			}
		}},
		{"two tests", "test: follows test", func(x *rt.Exec) {
			for l := x.Loop(); l.Next() && l.Holds(n) && l.Holds(n); {
			}
		}},
		{"left branch", "nothing follows its last branch", func(x *rt.Exec) {
			for range x.Case(n, 2) {
				break
			}
		}},
		{"no branches", "end: follows case", func(x *rt.Exec) {
			for range x.Case(n, 0) {
			}
		}},
		{"a test in a branch", "test: follows branch", func(x *rt.Exec) {
			for l := x.Loop(); l.Next(); {
				for range x.Case(n, 1) {
					l.Holds(n)
				}
			}
		}},
		{"another round behind the loop", "end: is outside", func(x *rt.Exec) {
			l := x.Loop()
			for l.Next() && l.Holds(n) {
			}
			l.Next()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := besideModule()
			drv, devs, o := target(t, 2)
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				_, err := rt.Prepare(ctx, r, m, c.step, rt.Options{}, true)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
		})
	}
}
