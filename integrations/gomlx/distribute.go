package gomlx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// A computation is of one device, or of several in one of two ways. With DistributedSPMD every
// device runs it on values of its own, and AllReduce is between replicas of StableHLO. With
// DistributedAutoSharding it is one computation of all devices, whose shardings are those of the
// sdy dialect, and package spmd of concert partitions it.

// DistributedSPMD makes the computation run on devices that have values of their own.
func (n *builder) DistributedSPMD(devices int) error {
	if err := n.begin(devices); err != nil {
		return err
	}
	n.replicas = devices
	return nil
}

// DistributedAutoSharding makes the computation one of all devices of a mesh.
func (n *builder) DistributedAutoSharding(meshes ...compute.Mesh) error {
	if len(meshes) == 0 {
		return errors.New("concert: a computation over meshes takes one at least")
	}
	for i, m := range meshes {
		if len(m.AxesSizes) != len(m.AxesNames) || m.Name == "" {
			return errors.Errorf("concert: mesh %q has %d axes and %d names", m.Name, len(m.AxesSizes), len(m.AxesNames))
		}
		for k, name := range m.AxesNames {
			if m.AxesSizes[k] < 1 || name == "" || slices.Contains(m.AxesNames[:k], name) {
				return errors.Errorf("concert: mesh %q has an axis %q of %d: want different names, and a device each at least", m.Name, name, m.AxesSizes[k])
			}
		}
		if l := m.LogicalDeviceAssignment; len(l) > 0 && !permutes(l, size(m)) {
			return errors.Errorf("concert: mesh %q of %d devices assigns %v: want each of 0 to %d once", m.Name, size(m), m.LogicalDeviceAssignment, size(m)-1)
		}
		if size(m) != size(meshes[0]) {
			return errors.Wrapf(compute.ErrNotImplemented, "concert: meshes %q and %q of %d and %d devices in one computation",
				meshes[0].Name, m.Name, size(meshes[0]), size(m))
		}
		if slices.ContainsFunc(meshes[:i], func(o compute.Mesh) bool { return o.Name == m.Name }) {
			return errors.Errorf("concert: two meshes %q in one computation", m.Name)
		}
	}
	if err := n.begin(size(meshes[0])); err != nil {
		return err
	}
	n.meshes = meshes
	return nil
}

// permutes reports whether a list has each number from 0 to n-1 once.
func permutes(l []int, n int) bool {
	for i, x := range slices.Sorted(slices.Values(l)) {
		if x != i {
			return false
		}
	}
	return len(l) == n
}

func size(m compute.Mesh) int {
	n := 1
	for _, s := range m.AxesSizes {
		n *= s
	}
	return n
}

// begin checks that a computation may be distributed.
func (n *builder) begin(devices int) error {
	switch {
	case len(n.main.params) > 0 || len(n.main.lines) > 0 || n.done:
		return errors.Errorf("concert: computation %q is distributed after it has begun", n.name)
	case n.world() > 1 || n.meshes != nil:
		return errors.Errorf("concert: computation %q is distributed twice", n.name)
	case devices < 1 || devices > n.b.devices:
		return errors.Errorf("concert: computation %q on %d devices, there are %d", n.name, devices, n.b.devices)
	}
	return nil
}

// DeviceAssignment says which devices the computation runs on.
func (n *builder) DeviceAssignment(devices ...compute.DeviceNum) error {
	if len(devices) != n.world() {
		return errors.Errorf("concert: %d devices for computation %q, which runs on %d", len(devices), n.name, n.world())
	}
	for i, d := range devices {
		if d < 0 || int(d) >= n.b.devices || slices.Contains(devices[:i], d) {
			return errors.Errorf("concert: devices %v of computation %q: want different ones of %d", devices, n.name, n.b.devices)
		}
	}
	n.devices = slices.Clone(devices)
	return nil
}

// world is how many devices the computation runs on.
func (n *builder) world() int {
	if n.meshes != nil {
		return size(n.meshes[0])
	}
	return max(n.replicas, 1)
}

// fixed reports whether the computation runs on devices of its own.
func (n *builder) fixed() bool { return n.devices != nil || n.world() > 1 }

// assigned are the devices that the computation runs on.
func (n *builder) assigned() []compute.DeviceNum {
	if n.devices != nil {
		return n.devices
	}
	out := make([]compute.DeviceNum, n.world())
	for i := range out {
		out[i] = compute.DeviceNum(i)
	}
	return out
}

// sharded reports whether shardings say anything: those of a computation that every device
// runs on values of its own are the caller's business.
func (n *builder) sharded() bool { return n.meshes != nil && n.world() > 1 }

// checkSpec is an error for a sharding that a value cannot have.
func (n *builder) checkSpec(what string, shape shapes.Shape, s *compute.ShardingSpec) error {
	if s == nil || !n.sharded() {
		return nil
	}
	m := n.mesh(s.Mesh)
	if m == nil {
		return errors.Errorf("concert: %s of computation %q is sharded over mesh %q, which it has not got", what, n.name, s.Mesh)
	}
	if len(s.Axes) > shape.Rank() {
		return errors.Errorf("concert: %s is %s, and its sharding has %d dimensions", what, shape, len(s.Axes))
	}
	var used []string
	for d, axes := range s.Axes {
		k := 1
		for _, a := range axes {
			i := slices.Index(m.AxesNames, a)
			if i < 0 || slices.Contains(used, a) {
				return errors.Errorf("concert: %s is sharded along %q, which mesh %q has not got or which cuts it twice", what, a, s.Mesh)
			}
			used, k = append(used, a), k*m.AxesSizes[i]
		}
		if shape.Dimensions[d]%k != 0 {
			return errors.Errorf("concert: %s is %s, whose dimension %d is not divided by %d devices", what, shape, d, k)
		}
	}
	return nil
}

func (n *builder) mesh(name string) *compute.Mesh {
	i := slices.IndexFunc(n.meshes, func(m compute.Mesh) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &n.meshes[i]
}

// local is the shape of a device's piece.
func (n *builder) local(shape shapes.Shape, s *compute.ShardingSpec) shapes.Shape {
	if s == nil || !n.sharded() {
		return shape
	}
	out, m := shape.Clone(), n.mesh(s.Mesh)
	for d, axes := range s.Axes {
		for _, a := range axes {
			out.Dimensions[d] /= m.AxesSizes[slices.Index(m.AxesNames, a)]
		}
	}
	return out
}

// head is what stands before the functions of a module.
func (n *builder) head() string {
	if n.replicas > 1 {
		return fmt.Sprintf("module attributes {mhlo.num_replicas = %d : i32} {\n", n.replicas)
	}
	if !n.sharded() {
		return "module {\n"
	}
	// Where nothing has a sharding, this alone says how many devices compute the same.
	text := fmt.Sprintf("module attributes {mhlo.num_partitions = %d : i32} {\n", n.world())
	for _, m := range n.meshes {
		axes := make([]string, len(m.AxesNames))
		for i, a := range m.AxesNames {
			axes[i] = fmt.Sprintf("%q=%d", a, m.AxesSizes[i])
		}
		ids := ""
		if !slices.IsSorted(m.LogicalDeviceAssignment) {
			ids = ", device_ids=" + list(m.LogicalDeviceAssignment)
		}
		text += fmt.Sprintf("sdy.mesh @%q = <[%s]%s>\n", m.Name, strings.Join(axes, ", "), ids)
	}
	return text
}

// sharding is a value's sharding as an attribute, empty if it has none.
func (n *builder) sharding(shape shapes.Shape, s *compute.ShardingSpec) []string {
	if s == nil || !n.sharded() {
		return nil
	}
	dims := make([]string, shape.Rank())
	for d := range dims {
		axes := make([]string, len(axesOf(s, d)))
		for i, a := range axesOf(s, d) {
			axes[i] = strconv.Quote(a)
		}
		dims[d] = "{" + strings.Join(axes, ", ") + "}"
	}
	return []string{fmt.Sprintf("sdy.sharding = #sdy.sharding<@%q, [%s]>", s.Mesh, strings.Join(dims, ", "))}
}

// AllReduce reduces every operand over groups of devices.
func (f *function) AllReduce(operands []compute.Value, kind compute.ReduceOpType, groups [][]int) ([]compute.Value, error) {
	in, err := f.values(operands)
	if err != nil {
		return nil, err
	}
	op, ok := reduceOps[kind]
	if !ok {
		return nil, errors.Errorf("concert: AllReduce by %s", kind)
	}
	if f.n.meshes != nil {
		return nil, errors.Errorf("concert: AllReduce in computation %q, which is partitioned", f.n.name)
	}
	rows := make([]string, len(groups))
	for i, g := range groups {
		if len(g) != len(groups[0]) || len(g) == 0 {
			return nil, errors.Errorf("concert: AllReduce over groups %v, which are not of one size", groups)
		}
		if slices.ContainsFunc(g, func(d int) bool { return d < 0 || d >= f.n.world() }) {
			return nil, errors.Errorf("concert: AllReduce over groups %v of %d devices", groups, f.n.world())
		}
		rows[i] = list(g)
	}
	if f.n.world() == 1 {
		return operands, nil
	}
	if len(rows) == 0 {
		return nil, errors.New("concert: AllReduce over no groups")
	}
	outs := make([]compute.Value, len(in))
	for i, v := range in {
		outs[i], err = result(f.one(v.shape, `"stablehlo.all_reduce"(%s) <{replica_groups = dense<[%s]> : tensor<%dx%dxi64>}> %s : (%s) -> %s`,
			v.name, strings.Join(rows, ", "), len(groups), len(groups[0]), f.fold(op, v.shape), typeText(v.shape), typeText(v.shape)))
		if err != nil {
			return nil, err
		}
	}
	return outs, nil
}
