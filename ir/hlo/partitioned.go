package hlo

import (
	"slices"
	"strings"
)

// partitioned refuses a module of several partitions that XLA's partitioner has not been through: its
// parameters are whole tensors, which their shardings would cut, and nothing in it communicates. One that
// is partitioned keeps the shardings of its parameters, whose types are those of the pieces.
func (c *converter) partitioned() error {
	n, ok := get(c.m.attrs, "num_partitions")
	if _, scheduled := get(c.m.attrs, "is_scheduled"); !ok || scheduled {
		return nil
	}
	if l, err := c.numbers(n); err != nil || len(l) != 1 || l[0] < 2 {
		return err
	}
	for _, k := range c.m.order {
		if slices.ContainsFunc(k.list, communicates) {
			return nil
		}
	}
	for _, in := range c.entry.list {
		a, ok := get(in.attrs, "sharding")
		if ok && in.opcode == "parameter" && strings.Contains(c.src.Text[a.start:a.end], "devices=") {
			c.in = in
			return c.errorf("op not supported: a sharded parameter of a module that is not partitioned: print what XLA compiled, or the program in StableHLO")
		}
	}
	return nil
}

// communicates reports whether what an instruction does depends on ranks.
func communicates(in *instruction) bool {
	of := strings.TrimSuffix(in.opcode, "-start")
	return slices.Contains(collectives, of) || of == "collective-permute" || of == "partition-id"
}
