package device

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
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

// seat is where a rank on device dev is: on Options.Machine, or on what the driver shows.
func seat(drv driver.Driver, spec *rt.Spec, o *Options, dev int) (*topo.Seat, error) {
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 || dev >= len(infos) {
		return nil, fmt.Errorf("rank %d: device %d: this machine has %d devices", spec.Rank, dev, len(infos))
	}
	s := &topo.Seat{World: spec.World, GPU: topo.UUID(infos[dev].UUID)}
	if o.Machine != nil {
		s.Machine = *o.Machine
		return s, nil
	}
	s.Partial = true
	m, err := shown(drv, infos)
	if err == nil {
		s.Machine = *m
	}
	return s, err
}

// shown is the machine as far as the CUDA driver shows it to this process. Its host's
// identity is what the runtime's rendezvous says.
func shown(drv driver.Driver, infos []driver.DeviceInfo) (*topo.Machine, error) {
	v, err := drv.Version()
	if err != nil {
		return nil, err
	}
	m := &topo.Machine{Version: topo.Version, Host: topo.Host{ID: "here"}, CUDA: fmt.Sprintf("%d.%d", v/1000, v%1000/10)}
	for i, d := range infos {
		m.GPUs = append(m.GPUs, topo.GPU{Index: i, UUID: topo.UUID(d.UUID), Name: d.Name, PCI: d.PCI,
			Capability: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, MemoryBytes: d.Memory})
		for j := i + 1; j < len(infos); j++ {
			p := topo.Pair{A: i, B: j, Way: topo.WayUnknown, Read: topo.OK, Write: topo.OK, Atomics: topo.OK, NVLink: topo.Untold, PCI: topo.Untold}
			for _, way := range [2][2]int{{i, j}, {j, i}} {
				ok, err := drv.CanAccessPeer(way[0], way[1])
				if err != nil {
					return nil, err
				}
				if !ok {
					p.Read, p.Write, p.Atomics = "not supported", "not supported", "not supported"
				}
			}
			m.Pairs = append(m.Pairs, p)
		}
	}
	return m, nil
}

// connected decides what carries the groups of a spec whose ranks sit so. It is the same on
// every rank, but for the rank that errors name. Ranks of machines that do not agree are a
// *runtime.MismatchError, groups that cannot communicate a *TransportError.
func connected(spec *rt.Spec, o *Options, seats []topo.Seat) (*routes, error) {
	refuse := func(err error) (*routes, error) {
		return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: "the ranks' devices cannot form a world", Err: err}
	}
	l, err := topo.Arrange(spec.Rank, seats)
	if err != nil {
		return refuse(err)
	}
	r, err := route(spec, o, l)
	if err != nil {
		return refuse(err)
	}
	for _, g := range spec.Groups { // before anything is allocated
		if _, err := r.of(g); err != nil {
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

// carries tells what carries a group.
func (d *Device) carries(g rt.Group, row []topo.Decision) {
	for k, ranks := range g.Ranks {
		if d.opts.Log != nil && len(ranks) > 1 && d.spec.Rank == ranks[0] {
			d.opts.Log.Info("transport", "group", g.Name, "ranks", strings.Trim(fmt.Sprint(ranks), "[]"), "by", string(row[k].Transport), "because", row[k].Reason)
		}
	}
}
