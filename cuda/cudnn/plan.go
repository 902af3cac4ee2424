package cudnn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cuda/library"
)

// engine is a plan of a graph: an engine of the library with its configuration.
type engine struct {
	low       *lowering
	graph     *graph
	plan      desc
	index     int64 // the engine's number in the library
	workspace int64 // that the engine asks for, besides the graph's own
	tried     int   // configurations refused before this one

	key   string // in Library.engines
	steps int    // that use it
}

// bytes is the workspace of a call: the graph's scratch tensors, then the engine's.
func (e *engine) bytes() uint64 { return e.graph.scratch + uint64(e.workspace) }

// newEngine plans a graph: it takes the first configuration of the heuristics that
// can be built, that is reproducible if exact is set, and that needs at most limit
// bytes of workspace. sms > 0 asks for engines that leave the other multiprocessors
// alone. When there is none the error wraps library.ErrNotServed and says why each
// was refused.
func newEngine(a api, g *graph, exact bool, limit uint64, sms int) (_ *engine, err error) {
	low := &lowering{api: a}
	defer func() {
		if err != nil {
			low.free()
			err = served(err)
		}
	}()
	ops, err := low.graph(g)
	if err != nil {
		return nil, err
	}
	var why []string
	for _, mode := range g.modes {
		configs, err := low.heuristics(ops, mode, sms)
		var not *Error
		switch {
		case errors.As(err, &not) && not.unsupported(): // others may know more
			why = append(why, err.Error())
		case err != nil:
			return nil, err
		}
		for _, c := range configs {
			e := &engine{low: low, graph: g, tried: len(why)}
			reason, err := e.try(c, exact, limit)
			var bad *Error
			switch {
			case errors.As(err, &bad):
				reason = err.Error()
			case err != nil:
				return nil, err
			case reason == "":
				return e, nil
			}
			why = append(why, fmt.Sprintf("engine %d: %s", e.index, reason))
		}
	}
	if len(why) == 0 {
		why = []string{"the heuristics know no engine for this graph"}
	}
	return nil, fmt.Errorf("%w: %s", library.ErrNotServed, strings.Join(why, "; "))
}

// served makes a refusal of the library one that ErrNotServed matches.
func served(err error) error {
	var e *Error
	if errors.As(err, &e) && e.unsupported() {
		return fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	return err
}

// heuristics gives the configurations for an operation graph, best first.
func (l *lowering) heuristics(ops desc, mode int32, sms int) ([]desc, error) {
	on := descHeuristics
	s := []setting{l.descs(on, attrHeurGraph, ops), l.enum(on, attrHeurMode, typeHeurMode, mode)}
	if sms > 0 {
		s = append(s, l.enum(on, attrHeurSMs, typeInt32, int32(sms)))
	}
	h, err := l.build(on, descHeuristics, s...)
	if err != nil {
		return nil, err
	}
	n, err := l.getDescs(on, h, attrHeurResults, nil)
	if err != nil || n < 1 {
		return nil, err
	}
	configs := make([]desc, n)
	for i := range configs {
		if configs[i], err = l.make(descEngineCfg); err != nil {
			return nil, err
		}
	}
	n, err = l.getDescs(on, h, attrHeurResults, configs)
	return configs[:max(min(n, int64(len(configs))), 0)], err
}

// try builds a plan of a configuration, or says why not.
func (e *engine) try(config desc, exact bool, limit uint64) (reason string, err error) {
	l := e.low
	eng, err := l.make(descEngine)
	if err != nil {
		return "", err
	}
	if _, err := l.getDescs(descEngineCfg, config, attrCfgEngine, []desc{eng}); err != nil {
		return "", err
	}
	if e.index, err = l.getInt(descEngine, eng, attrEngineIndex); err != nil {
		return "", err
	}
	notes, err := l.getEnums(descEngine, eng, attrEngineNotes, typeNote, 10)
	if err != nil {
		return "", err
	}
	if exact && (slices.Contains(notes, noteUnreproduced) || slices.Contains(e.graph.varying, e.index)) {
		return "its results may differ from run to run", nil
	}
	if slices.ContainsFunc(notes, func(n int32) bool { return slices.Contains(e.graph.never, n) }) {
		return fmt.Sprintf("its numbers are not those asked for (notes %v)", notes), nil
	}
	e.plan, err = l.build(descPlan, descPlan, l.descs(descPlan, attrPlanCfg, config),
		func(d desc) error { return l.setHandle(descPlan, d, attrPlanHandle) })
	if err != nil {
		return "", err
	}
	if e.workspace, err = l.getInt(descPlan, e.plan, attrPlanWorkspace); err != nil {
		return "", err
	}
	if e.bytes() > limit {
		return fmt.Sprintf("it needs %d bytes of workspace, there are %d", e.bytes(), limit), nil
	}
	return "", nil
}

// pack binds a plan to the addresses of a call, with a descriptor of l. scalars are
// addresses of host memory, by the order of the graph's scalars, that outlive the pack.
func (e *engine) pack(l *lowering, ports *[numPorts]uintptr, workspace uintptr, scalars []uintptr) (desc, error) {
	var uids []int64
	var at []uintptr
	for _, t := range e.graph.tensors {
		p := uintptr(0)
		switch t.role {
		case virtual:
			continue
		case external:
			p = ports[t.port]
		case scratch, moved:
			p = workspace + uintptr(t.offset)
		case scalar:
			p, scalars = scalars[0], scalars[1:]
		}
		uids, at = append(uids, t.uid), append(at, p)
	}
	on := descPack
	return l.build(on, descPack,
		func(d desc) error { return l.setPointers(on, d, attrPackWorkspace, workspace+uintptr(e.graph.scratch)) },
		func(d desc) error { return l.setPointers(on, d, attrPackPointers, at...) },
		l.ints(on, attrPackUIDs, uids...))
}
