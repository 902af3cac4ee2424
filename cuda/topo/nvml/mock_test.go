//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/seed-ee968945/concert/cuda/topo"
)

func pci(s string) (p nvml.PciInfo) {
	for i := range s {
		p.BusId[i] = int8(s[i])
	}
	return p
}

// fakeGPUs gives n devices of a library, each with 4 links: to a switch where
// switched, else to the next device.
func fakeGPUs(n int, switched bool) (*mock.Interface, []*mock.Device) {
	bus := []string{"00000000:1B:00.0", "00000000:43:00.0", "00000000:52:00.0"}
	devs := make([]*mock.Device, n)
	for i := range n {
		d := &mock.Device{}
		devs[i] = d
		d.GetUUIDFunc = func() (string, nvml.Return) { return "GPU-" + bus[i], nvml.SUCCESS }
		d.GetNameFunc = func() (string, nvml.Return) { return "NVIDIA Test", nvml.SUCCESS }
		d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pci(bus[i]), nvml.SUCCESS }
		d.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS }
		d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 132 * 128, nvml.SUCCESS }
		d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 1 << 37}, nvml.SUCCESS }
		d.GetMaxClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
			return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1980, nvml.CLOCK_MEM: 3201}[c], nvml.SUCCESS
		}
		d.GetMemoryBusWidthFunc = func() (uint32, nvml.Return) { return 6144, nvml.SUCCESS }
		d.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return 5, nvml.SUCCESS }
		d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, nvml.SUCCESS }
		d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.SUCCESS }
		d.GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) { return []uint{0xff, 0xf0}, nvml.SUCCESS }
		d.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return []uint{2}, nvml.SUCCESS }
		d.GetNvLinkStateFunc = func(l int) (nvml.EnableState, nvml.Return) {
			switch {
			case l == 2: // one link is down
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			case l > 4:
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		d.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			if switched {
				return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
			}
			return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
		}
		d.GetNvLinkRemotePciInfoFunc = func(l int) (nvml.PciInfo, nvml.Return) {
			if switched {
				return pci([]string{"00000000:07:00.0", "00000000:08:00.0"}[l%2]), nvml.SUCCESS
			}
			return pci(bus[(i+1)%n]), nvml.SUCCESS
		}
		d.GetNvLinkVersionFunc = func(int) (uint32, nvml.Return) { return 3, nvml.SUCCESS }
		d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
			if v[0].FieldId != nvml.FI_DEV_NVLINK_GET_SPEED {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			binary.NativeEndian.PutUint32(v[0].Value[:], 26562)
			return nvml.SUCCESS
		}
		d.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{ClusterUuid: [16]uint8{0xab}, CliqueId: 7, State: nvml.GPU_FABRIC_STATE_COMPLETED}, nvml.SUCCESS
		}
		d.GetP2PStatusFunc = func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			return nvml.P2P_STATUS_OK, nvml.SUCCESS
		}
		d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return nvml.TOPOLOGY_NODE, nvml.SUCCESS
		}
	}
	lib := &mock.Interface{}
	lib.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	lib.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	lib.ErrorStringFunc = func(r nvml.Return) string {
		return map[nvml.Return]string{nvml.ERROR_NO_PERMISSION: "no permission"}[r]
	}
	lib.SystemGetDriverVersionFunc = func() (string, nvml.Return) { return "580.1", nvml.SUCCESS }
	lib.SystemGetCudaDriverVersionFunc = func() (int, nvml.Return) { return 13010, nvml.SUCCESS }
	lib.DeviceGetCountFunc = func() (int, nvml.Return) { return n, nvml.SUCCESS }
	lib.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) { return devs[i], nvml.SUCCESS }
	lib.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(s string) error {
			if s == "nvmlDeviceGetGpuFabricInfoV" { // its handle cannot be mocked
				return errors.New("undefined symbol")
			}
			return nil
		}}
	}
	return lib, devs
}

var host = topo.Host{ID: "id", Name: "h", CPUs: 8}

func TestMockSwitched(t *testing.T) {
	lib, _ := fakeGPUs(3, true)
	m, err := read(lib, host)
	if err != nil {
		t.Fatal(err)
	}
	g := m.GPUs[1]
	if g.PCI != "00000000:43:00.0" || g.SMs != 132 || g.Capability != "9.0" || g.CPUs != "0-7,68-71" || !slices.Equal(g.NUMA, []int{1}) || g.MemoryBits != 6144 || m.CUDA != "13.1" {
		t.Errorf("%+v", g)
	}
	// Links 0, 1, 3, 4 are up: two to each switch.
	want := []topo.NVLinks{{End: topo.EndSwitch, PCI: "00000000:07:00.0", Links: 2, GBps: 26.562}, {End: topo.EndSwitch, PCI: "00000000:08:00.0", Links: 2, GBps: 26.562}}
	if !slices.Equal(g.NVLinks, want) {
		t.Errorf("%+v", g.NVLinks)
	}
	if g.Fabric == nil || g.Fabric.Cluster != "ab000000-0000-0000-0000-000000000000" || g.Fabric.Clique != 7 || !g.Fabric.Usable() {
		t.Errorf("%+v", g.Fabric)
	}
	if p := m.Pair(2, 0); p == nil || p.Way != topo.WaySwitch || p.Links != 4 || p.GBps != 106.248 || p.Ancestor != "node" || p.Atomics != topo.OK {
		t.Errorf("%+v", p)
	}
	if m.Switches() != 2 || len(m.Notes) != 0 || len(m.Pairs) != 3 {
		t.Errorf("%d switches, %d pairs, notes %v", m.Switches(), len(m.Pairs), m.Notes)
	}
	if len(lib.ShutdownCalls()) != 1 {
		t.Error("the library was not shut down")
	}
}

func TestMockDirect(t *testing.T) {
	lib, devs := fakeGPUs(2, false)
	devs[0].GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
	m, err := read(lib, host)
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Pair(0, 1); p.Way != topo.WayNVLink || p.Links != 4 || p.GBps != 100 { // the rate of the links' version
		t.Errorf("%+v", p)
	}
	// One direction without access is no access.
	devs[1].GetP2PStatusFunc = func(_ nvml.Device, k nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
		if k == nvml.P2P_CAPS_INDEX_NVLINK || k == nvml.P2P_CAPS_INDEX_READ {
			return nvml.P2P_STATUS_DISABLED_BY_REGKEY, nvml.SUCCESS
		}
		return nvml.P2P_STATUS_OK, nvml.SUCCESS
	}
	if m, err = read(lib, host); err != nil {
		t.Fatal(err)
	}
	p := m.Pair(0, 1)
	if p.Way != topo.WayPCIe || p.Links != 0 || p.Read != "disabled by the driver's settings" || p.Write != topo.OK {
		t.Errorf("%+v", p)
	}
	if d, err := topo.Local(m, 0, 1).Decide([]int{0, 1}, topo.DecideOptions{}); err != nil || d.Transport != topo.NCCL {
		t.Errorf("%v, %v", d, err)
	}
}

// TestMockRefused: what the driver does not tell is noted, and what has no identity
// is an error.
func TestMockRefused(t *testing.T) {
	lib, devs := fakeGPUs(2, true)
	devs[1].GetNumGpuCoresFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NO_PERMISSION }
	devs[1].GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_NO_PERMISSION }
	devs[0].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) { return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED }
	m, err := read(lib, host)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"GPU 1: addresses at NVLinks: no permission", "GPU 1: cores: no permission"}
	if !slices.Equal(m.Notes, want) || m.GPUs[1].SMs != 0 || m.GPUs[0].Fabric != nil || m.Switches() != -1 {
		t.Errorf("notes %q, %+v", m.Notes, m.GPUs)
	}
	if !strings.Contains(m.String(), "not read: GPU 1: cores") {
		t.Error("the table hides what was not read")
	}
	devs[1].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_NO_PERMISSION }
	var e *Error
	if _, err := read(lib, host); !errors.As(err, &e) || e.GPU != 1 || e.Reason != "no permission" {
		t.Errorf("%v", err)
	}
	lib.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := read(lib, host); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
