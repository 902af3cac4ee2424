package passes

import "github.com/seed-ee968945/concert/ir"

// PastWrites are passes that look past in-place writes, as passes did while a write left
// the name of what it wrote: operands lose their versions, the rules of today run without
// knowing of writes, and then every operand reads the newest version before it.
func PastWrites() []Pass {
	past := func(name string, run func(ctx *Context, f *ir.Func)) Pass {
		p := *Standard().Lookup(name)
		p.Name, p.Was = "past-"+p.Name, ""
		p.Run = func(ctx *Context, f *ir.Func) error {
			for _, n := range f.Order() {
				for i, a := range n.DeclaredArgs() {
					if a.IsVersion() {
						f.SetArg(n, i, a.Base())
					}
				}
			}
			run(ctx, f)
			f.ResolveVersions()
			return nil
		}
		return p
	}
	return []Pass{
		past("simplify-collectives", func(ctx *Context, f *ir.Func) { simplify(ctx, f, &ir.Writes{}) }),
		past("fuse", func(ctx *Context, f *ir.Func) { copyCheap(ctx, f, &ir.Writes{}) }),
	}
}
