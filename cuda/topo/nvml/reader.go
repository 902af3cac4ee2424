//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/seed-ee968945/concert/cuda/topo"
)

// Read reads this host's machine. What the driver does not tell is noted in the
// machine; only the lack of a driver, or of the identity of a GPU, is an error.
func Read(o Options) (*topo.Machine, error) {
	var opts []nvml.LibraryOption
	if o.Path != "" {
		opts = append(opts, nvml.WithLibraryPath(o.Path))
	}
	lib := nvml.New(opts...)
	host := topo.Host{ID: o.HostID, CPUs: runtime.NumCPU()}
	host.Name, _ = os.Hostname() // a host without a name is still a host
	if host.ID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if host.ID = strings.TrimSpace(string(b)); err != nil || host.ID == "" {
			host.ID = host.Name
		}
	}
	return read(lib, host)
}

// reader collects a machine. lib may be a mock.
type reader struct {
	lib  nvml.Interface
	m    *topo.Machine
	devs []nvml.Device
	has  map[string]bool // symbols of the loaded library
}

func read(lib nvml.Interface, host topo.Host) (*topo.Machine, error) {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		reason := "the driver's management library could not be initialised"
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			reason = "libnvidia-ml.so.1 was not found: no NVIDIA driver is installed"
		}
		return nil, &Error{Call: "nvmlInit", GPU: -1, Code: int(ret), Reason: reason, wrap: ErrUnavailable}
	}
	defer lib.Shutdown()
	r := &reader{lib: lib, m: &topo.Machine{Version: topo.Version, Host: host}, has: map[string]bool{}}
	for _, s := range []string{"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetNumGpuCores",
		"nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetNvLinkRemoteDeviceType"} {
		r.has[s] = lib.Extensions().LookupSymbol(s) == nil
	}
	var ret nvml.Return
	if r.m.Driver, ret = lib.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		r.note("driver version", ret)
	}
	if v, ret := lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		r.m.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	} else {
		r.note("CUDA version", ret)
	}
	n, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, r.fail("nvmlDeviceGetCount", -1, ret)
	}
	for i := range n {
		if err := r.gpu(i); err != nil {
			return nil, err
		}
	}
	for a := range r.devs {
		for b := a + 1; b < len(r.devs); b++ {
			r.pair(a, b)
		}
	}
	slices.Sort(r.m.Notes)
	r.m.Notes = slices.Compact(r.m.Notes)
	return r.m, r.m.Check()
}

func (r *reader) fail(call string, gpu int, ret nvml.Return) error {
	return &Error{Call: call, GPU: gpu, Code: int(ret), Reason: r.text(ret)}
}

func (r *reader) text(ret nvml.Return) string { return r.lib.ErrorString(ret) }

// note records what could not be read.
func (r *reader) note(what string, ret nvml.Return) {
	r.m.Notes = append(r.m.Notes, what+": "+r.text(ret))
}

// get notes a failure and gives zero for it.
func get[T any](r *reader, i int, what string, v T, ret nvml.Return) T {
	if ret == nvml.SUCCESS {
		return v
	}
	r.note(fmt.Sprintf("GPU %d: %s", i, what), ret)
	var zero T
	return zero
}

func (r *reader) gpu(i int) error {
	d, ret := r.lib.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		return r.fail("nvmlDeviceGetHandleByIndex", i, ret)
	}
	g := topo.GPU{Index: i}
	if g.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return r.fail("nvmlDeviceGetUUID", i, ret)
	}
	name, ret := d.GetName()
	g.Name = get(r, i, "name", name, ret)
	pci, ret := d.GetPciInfo()
	if ret == nvml.SUCCESS {
		g.PCI = busID(pci)
	} else {
		r.note(fmt.Sprintf("GPU %d: PCI address", i), ret)
	}
	major, minor, ret := d.GetCudaComputeCapability()
	if ret == nvml.SUCCESS {
		g.Capability = fmt.Sprintf("%d.%d", major, minor)
	} else {
		r.note(fmt.Sprintf("GPU %d: compute capability", i), ret)
	}
	if r.has["nvmlDeviceGetNumGpuCores"] {
		cores, ret := d.GetNumGpuCores()
		g.SMs = get(r, i, "cores", cores, ret) / coresPerSM(major, minor)
	}
	mem, ret := d.GetMemoryInfo()
	g.MemoryBytes = get(r, i, "memory", mem, ret).Total
	clock, ret := d.GetMaxClockInfo(nvml.CLOCK_SM)
	g.SMMHz = int(get(r, i, "clock", clock, ret))
	clock, ret = d.GetMaxClockInfo(nvml.CLOCK_MEM)
	g.MemoryMHz = int(get(r, i, "memory clock", clock, ret))
	if r.has["nvmlDeviceGetMemoryBusWidth"] {
		bits, ret := d.GetMemoryBusWidth()
		g.MemoryBits = int(get(r, i, "memory width", bits, ret))
	}
	gen, ret := d.GetMaxPcieLinkGeneration()
	g.PCIeGen = get(r, i, "PCIe generation", gen, ret)
	lanes, ret := d.GetMaxPcieLinkWidth()
	g.PCIeLanes = get(r, i, "PCIe width", lanes, ret)
	if mode, _, ret := d.GetMigMode(); ret == nvml.SUCCESS {
		g.MIG = mode == nvml.DEVICE_MIG_ENABLE
	} else if ret != nvml.ERROR_NOT_SUPPORTED {
		r.note(fmt.Sprintf("GPU %d: MIG mode", i), ret)
	}
	const mostCPUs, mostNodes = 4096, 1024
	cpus, ret := d.GetCpuAffinity(mostCPUs)
	g.CPUs = ranges(bits(get(r, i, "CPU affinity", cpus, ret)))
	if r.has["nvmlDeviceGetMemoryAffinity"] {
		nodes, ret := d.GetMemoryAffinity(mostNodes, nvml.AFFINITY_SCOPE_NODE)
		g.NUMA = bits(get(r, i, "memory affinity", nodes, ret))
	}
	g.NVLinks = r.links(i, d)
	g.Fabric = r.fabric(i, d)
	r.devs, r.m.GPUs = append(r.devs, d), append(r.m.GPUs, g)
	return nil
}

// coresPerSM is how many f32 units a multiprocessor of a compute capability has.
func coresPerSM(major, minor int) int {
	if major <= 7 || major == 8 && minor == 0 {
		return 64
	}
	return 128
}

// busID is the PCI address, empty for the zero address of a hidden device.
func busID(p nvml.PciInfo) string {
	var b []byte
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	s := strings.ToLower(string(b))
	if strings.Trim(s, "0:.f") == "" {
		return ""
	}
	return s
}

// bits lists the set bits of a mask.
func bits(mask []uint) (out []int) {
	for w, v := range mask {
		for b := range 64 {
			if v>>b&1 == 1 {
				out = append(out, w*64+b)
			}
		}
	}
	return out
}

// ranges writes 0,1,2,5 as 0-2,5.
func ranges(v []int) string {
	var s []string
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[j+1] == v[j]+1 {
			j++
		}
		if i == j {
			s = append(s, fmt.Sprint(v[i]))
		} else {
			s = append(s, fmt.Sprintf("%d-%d", v[i], v[j]))
		}
		i = j + 1
	}
	return strings.Join(s, ",")
}

// gbps of one NVLink in one direction, by the link's version, where the driver does
// not tell the speed.
var gbps = map[uint32]float64{1: 20, 2: 25, 3: 25, 4: 25, 5: 25, 6: 25, 7: 50}

// links reads the NVLinks that are up, one bundle for each device at the other end.
func (r *reader) links(i int, d nvml.Device) (out []topo.NVLinks) {
	for l := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(l)
		if ret != nvml.SUCCESS {
			if ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_INVALID_ARGUMENT {
				r.note(fmt.Sprintf("GPU %d: state of NVLink %d", i, l), ret)
			}
			break // links are numbered without gaps
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		b := topo.NVLinks{End: topo.EndUnknown, Links: 1, GBps: r.speed(i, d, l)}
		if r.has["nvmlDeviceGetNvLinkRemoteDeviceType"] {
			if t, ret := d.GetNvLinkRemoteDeviceType(l); ret == nvml.SUCCESS {
				switch t {
				case nvml.NVLINK_DEVICE_TYPE_GPU:
					b.End = topo.EndGPU
				case nvml.NVLINK_DEVICE_TYPE_SWITCH:
					b.End = topo.EndSwitch
				case nvml.NVLINK_DEVICE_TYPE_IBMNPU:
					b.End = topo.EndCPU
				}
			} else {
				r.note(fmt.Sprintf("GPU %d: far ends of NVLinks", i), ret)
			}
		}
		if p, ret := d.GetNvLinkRemotePciInfo(l); ret == nvml.SUCCESS {
			b.PCI = busID(p)
		} else {
			r.note(fmt.Sprintf("GPU %d: addresses at NVLinks", i), ret)
		}
		k := slices.IndexFunc(out, func(o topo.NVLinks) bool { return o.End == b.End && o.PCI == b.PCI && o.GBps == b.GBps })
		if k >= 0 {
			out[k].Links++
		} else {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b topo.NVLinks) int {
		return strings.Compare(string(a.End)+a.PCI, string(b.End)+b.PCI)
	})
	return out
}

// speed of one NVLink in GB/s, in one direction.
func (r *reader) speed(i int, d nvml.Device, link int) float64 {
	v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_NVLINK_GET_SPEED, ScopeId: uint32(link)}}
	if ret := d.GetFieldValues(v); ret == nvml.SUCCESS && nvml.Return(v[0].NvmlReturn) == nvml.SUCCESS {
		if mb := binary.NativeEndian.Uint32(v[0].Value[:]); mb > 0 {
			return float64(mb) / 1000
		}
	}
	version, ret := d.GetNvLinkVersion(link)
	return gbps[get(r, i, "NVLink version", version, ret)]
}

var fabricStates = map[uint8]string{nvml.GPU_FABRIC_STATE_NOT_STARTED: "not started", nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in progress", nvml.GPU_FABRIC_STATE_COMPLETED: "completed"}

// fabric reads the newest form that the driver has. A GPU without a fabric has nil.
func (r *reader) fabric(i int, d nvml.Device) *topo.Fabric {
	var cluster [16]uint8
	var status, clique uint32
	var state, health uint8
	ret := nvml.Return(nvml.ERROR_FUNCTION_NOT_FOUND)
	if r.has["nvmlDeviceGetGpuFabricInfoV"] {
		h := d.GetGpuFabricInfoV()
		v3, ret3 := h.V3()
		if ret = ret3; ret == nvml.SUCCESS {
			cluster, status, clique, state, health = v3.ClusterUuid, v3.Status, v3.CliqueId, v3.State, v3.HealthSummary
		} else if v2, ret2 := h.V2(); ret2 == nvml.SUCCESS {
			ret, cluster, status, clique, state = ret2, v2.ClusterUuid, v2.Status, v2.CliqueId, v2.State
		}
	}
	if ret != nvml.SUCCESS && r.has["nvmlDeviceGetGpuFabricInfo"] {
		v1, ret1 := d.GetGpuFabricInfo()
		ret, cluster, status, clique, state = ret1, v1.ClusterUuid, v1.Status, v1.CliqueId, v1.State
	}
	if ret != nvml.SUCCESS {
		if ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_FUNCTION_NOT_FOUND {
			r.note(fmt.Sprintf("GPU %d: fabric", i), ret)
		}
		return nil
	}
	if state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
		return nil
	}
	f := &topo.Fabric{State: fabricStates[state], Clique: clique}
	if f.State == "" {
		f.State = fmt.Sprintf("state %d", state)
	}
	if cluster != [16]uint8{} {
		f.Cluster = fmt.Sprintf("%x-%x-%x-%x-%x", cluster[:4], cluster[4:6], cluster[6:8], cluster[8:10], cluster[10:])
	}
	if status != uint32(nvml.SUCCESS) {
		f.Status = r.text(nvml.Return(status))
	}
	switch health {
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY:
		f.Health = "healthy"
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY:
		f.Health = "unhealthy"
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY:
		f.Health = "limited capacity"
	}
	return f
}

var p2pTexts = map[nvml.GpuP2PStatus]string{nvml.P2P_STATUS_OK: topo.OK, nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED: "chipset not supported",
	nvml.P2P_STATUS_GPU_NOT_SUPPORTED: "GPU not supported", nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "topology not supported",
	nvml.P2P_STATUS_DISABLED_BY_REGKEY: "disabled by the driver's settings", nvml.P2P_STATUS_NOT_SUPPORTED: "not supported", nvml.P2P_STATUS_UNKNOWN: "unknown"}

// access asks for one kind of access in both directions and gives what stands in its
// way, if anything does.
func (r *reader) access(a, b int, kind nvml.GpuP2PCapsIndex) string {
	for _, p := range [][2]int{{a, b}, {b, a}} {
		s, ret := r.devs[p[0]].GetP2PStatus(r.devs[p[1]], kind)
		if ret != nvml.SUCCESS {
			return "not told: " + r.text(ret)
		}
		if s != nvml.P2P_STATUS_OK {
			if t, ok := p2pTexts[s]; ok {
				return t
			}
			return fmt.Sprintf("status %d", s)
		}
	}
	return topo.OK
}

var ancestors = map[nvml.GpuTopologyLevel]string{nvml.TOPOLOGY_INTERNAL: "internal", nvml.TOPOLOGY_SINGLE: "single", nvml.TOPOLOGY_MULTIPLE: "multiple",
	nvml.TOPOLOGY_HOSTBRIDGE: "hostbridge", nvml.TOPOLOGY_NODE: "node", nvml.TOPOLOGY_SYSTEM: "system"}

func (r *reader) pair(a, b int) {
	p := topo.Pair{A: a, B: b, Way: topo.WayPCIe, Read: r.access(a, b, nvml.P2P_CAPS_INDEX_READ), Write: r.access(a, b, nvml.P2P_CAPS_INDEX_WRITE),
		NVLink: r.access(a, b, nvml.P2P_CAPS_INDEX_NVLINK), Atomics: r.access(a, b, nvml.P2P_CAPS_INDEX_ATOMICS), PCI: r.access(a, b, nvml.P2P_CAPS_INDEX_PCI)}
	if level, ret := r.devs[a].GetTopologyCommonAncestor(r.devs[b]); ret == nvml.SUCCESS {
		p.Ancestor = ancestors[level]
	} else {
		r.note("PCIe topology", ret)
	}
	if p.NVLink == topo.OK {
		p.Way, p.Links, p.GBps = join(&r.m.GPUs[a], &r.m.GPUs[b])
		p.GBps = math.Round(p.GBps*1e3) / 1e3 // sums of decimal fractions
	}
	r.m.Pairs = append(r.m.Pairs, p)
}

// join says how NVLinks join two GPUs that reach each other by them: directly, or
// with all links to switches that both have.
func join(a, b *topo.GPU) (way topo.Way, links int, gbps float64) {
	for _, l := range a.NVLinks {
		if l.End == topo.EndGPU && l.PCI != "" && l.PCI == b.PCI {
			links, gbps = links+l.Links, gbps+float64(l.Links)*l.GBps
		}
	}
	if links > 0 {
		return topo.WayNVLink, links, gbps
	}
	na, ga := toSwitches(a)
	nb, gb := toSwitches(b)
	if n := min(na, nb); n > 0 {
		return topo.WaySwitch, n, min(ga, gb)
	}
	return topo.WayNVLink, 0, 0 // the driver says so, but not how many
}

// toSwitches sums the links to switches. Links whose far end is hidden count: what
// is no GPU of this machine and gives access to one is a switch.
func toSwitches(g *topo.GPU) (links int, gbps float64) {
	for _, l := range g.NVLinks {
		if l.End == topo.EndSwitch || l.End == topo.EndUnknown {
			links, gbps = links+l.Links, gbps+float64(l.Links)*l.GBps
		}
	}
	return links, gbps
}
