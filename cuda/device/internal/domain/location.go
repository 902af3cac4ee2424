package domain

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/topo"
	rt "github.com/seed-ee968945/concert/runtime"
)

// LocationOf is where a rank on device dev is: on a machine that is known, or on what the driver
// shows.
func LocationOf(drv driver.Driver, spec *rt.Spec, known *topo.Machine, dev int) (*topo.Location, error) {
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 || dev >= len(infos) {
		return nil, fmt.Errorf("rank %d: device %d: this machine has %d devices", spec.Rank, dev, len(infos))
	}
	s := &topo.Location{World: spec.World, GPU: topo.UUID(infos[dev].UUID)}
	if known != nil {
		s.Machine = *known
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
