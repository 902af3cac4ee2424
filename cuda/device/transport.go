package device

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// TransportError says that a group of the program cannot communicate: only NCCL can serve
// it, which Options.Transport forbids or this machine lacks.
type TransportError struct {
	Group    string
	Ranks    []int // of the subgroup
	Decision topo.Decision
	Err      error // why there is no NCCL; nil where it is not allowed
}

// Error names the group and the reason, and says what to do.
func (e *TransportError) Error() string {
	s := fmt.Sprintf("group %q of ranks %v needs NCCL (%s)", e.Group, e.Ranks, e.Decision.Reason)
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", s, e.Err)
	}
	return s + ", and the options allow symmetric memory only: put all ranks on GPUs of one host that have peer access to each other, or allow NCCL"
}

// Unwrap gives the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// connected decides what carries the groups of a spec whose ranks sit so. It is the same on
// every rank, but for the rank that errors name. Ranks of machines that do not agree are a
// *runtime.MismatchError, groups that cannot communicate a *TransportError.
func connected(spec *rt.Spec, o *Options, locations []topo.Location) (*domain.Routes, error) {
	refuse := func(err error) (*domain.Routes, error) {
		return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: "the ranks' devices cannot form a world", Err: err}
	}
	l, err := topo.NewLayout(spec.Rank, locations)
	if err != nil {
		return refuse(err)
	}
	r, err := domain.Route(spec, o.ShareDevice, o.Transport, l)
	if err != nil {
		return refuse(err)
	}
	for _, g := range spec.Groups { // before anything is allocated
		if _, err := o.decide(r, g); err != nil {
			return refuse(err)
		}
	}
	for _, note := range l.Mixed() {
		if o.Log != nil && spec.Rank == 0 {
			o.Log.Info("machines differ", "in", note)
		}
	}
	return r, nil
}

// decide says what carries a group, by subgroup. One that only NCCL can serve is a
// *TransportError where the options do not allow that.
func (o *Options) decide(r *domain.Routes, g rt.Group) ([]topo.Decision, error) {
	row, err := r.Of(g)
	if k := domain.NeedsNCCL(row); err == nil && k >= 0 && o.Transport == topo.Symmetric {
		err = &TransportError{Group: g.Name, Ranks: g.Ranks[k], Decision: row[k]}
	}
	return row, err
}

// carries tells what carries a group.
func (d *Device) carries(g rt.Group, row []topo.Decision) {
	for k, ranks := range g.Ranks {
		if d.opts.Log != nil && len(ranks) > 1 && d.spec.Rank == ranks[0] {
			d.opts.Log.Info("transport", "group", g.Name, "ranks", strings.Trim(fmt.Sprint(ranks), "[]"), "by", string(row[k].Transport), "because", row[k].Reason)
		}
	}
}
