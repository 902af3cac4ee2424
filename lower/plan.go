package lower

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// MemoryPlan is the placement problem of a function: which buffers it needs and
// when. Times are positions in the function's order; see the package for why
// order in the list is order in time.
type MemoryPlan struct {
	Buffers []PlannedBuffer // buffer i is Problem.Buffers[i]; the first ones are the function's storages, in order
	Problem pack.Problem

	names map[string]bool
}

// PlannedBuffer names a buffer and gives its size before alignment, in bytes.
type PlannedBuffer struct {
	Name  string
	Bytes int64
}

// Plan returns the placement problem of a verified function.
func Plan(f *ir.Func) (*MemoryPlan, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, fmt.Errorf("plan: @%s: %w", f.Name, err)
	}
	return newPlan(f, st), nil
}

func newPlan(f *ir.Func, st *ir.Storages) *MemoryPlan {
	p := &MemoryPlan{names: map[string]bool{}}
	for i, life := range lifetimes(f, st) {
		root, k := st.Root(ir.StorageID(i))
		name := outputName(root)
		if root.Type().IsAsync() && len(root.Type().Elems()) > 1 {
			name = fmt.Sprintf("%s.%d", name, k)
		}
		p.add(name, life.def, life.last, f.Module().Bound(st.Type(ir.StorageID(i)).Bytes()))
	}
	return p
}

// add adds a buffer that lives from position def to position last, both included.
func (p *MemoryPlan) add(name string, def, last int, bytes int64) {
	for p.names[name] {
		name += "_"
	}
	p.names[name] = true
	p.Buffers = append(p.Buffers, PlannedBuffer{name, bytes})
	size := (bytes + program.Align - 1) / program.Align * program.Align
	p.Problem.Buffers = append(p.Problem.Buffers, pack.Buffer{Lower: int64(def), Upper: int64(last) + 1, Size: size, Align: program.Align})
}
