package passes

import (
	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
)

// Pass is a row of the table.
type Pass struct {
	Name       string   // lower-case words joined by '-', as pipelines spell it
	FormerName string   // a former name, which pipelines may still have
	Doc        string   // one sentence
	Options    []Option // in the order in which they are documented
	Stats      []Stat   // all that Run may count

	// OrderOnly marks a pass that decides order and buckets and nothing else: it
	// removes, renames and rewires no traced node. The manager checks it
	// ([CheckOrderOnly]) after each run.
	OrderOnly bool

	// FunctionPass marks a pass that reads and changes nothing of the module but the function that it is
	// run on, symbols and groups aside, which it only reads: functions may go side by side.
	FunctionPass bool

	// Regions marks a pass that forms regions, of which each becomes one kernel of the
	// program's own ([FusionKey]).
	Regions bool

	// Places marks a pass that says where values lie; the manager proves that no read
	// finds other bytes than were written for it.
	Places bool

	// Partitions marks a pass that makes of functions those of each rank's pieces: inputs and
	// results get other types, and the manager proves nothing of it.
	Partitions bool

	// Reassociates names the option of KindBool, if any, that lets floats be added and
	// multiplied in another order; a proof of what the pass did may then do so, too.
	Reassociates string

	// ExcessPrecision names the option of KindBool, if any, that lets 16-bit floats keep more
	// precision than the program asks for; a proof of what the pass did then does not tell them
	// from float32.
	ExcessPrecision string

	// Run transforms one function. An error is about the input or the options; it
	// ends the pipeline. Run must leave the module legal, must ask ctx.Enable before
	// each decision it makes, and must count only what Stats declares.
	Run func(ctx *Context, f *ir.Func) error
}

// proof says what a proof may use of what p did with those options.
func (p *Pass) proof(values []value) (o equiv.Options) {
	for i := range p.Options {
		switch p.Options[i].Name {
		case p.Reassociates:
			o.Reassociate = values[i].num != 0
		case p.ExcessPrecision:
			o.ExcessPrecision = values[i].num != 0
		}
	}
	return o
}

// FusionKey is the annotation of a node that belongs to a region: the region's
// number, from 0 in program order. The nodes of a region are consecutive.
const FusionKey = place.FusionKey

// Stat declares one statistic of a pass.
type Stat struct {
	Name string
	Doc  string
}

// Constraint says that one pass has to come before another wherever both stand
// in a pipeline: every occurrence of Before precedes every occurrence of After.
type Constraint struct {
	Before, After string
	Needs         bool   // After cannot stand in a pipeline without Before
	Why           string // the reason, printed with every breach; never empty
}

// NamedPipeline is a pipeline that has a name of its own.
type NamedPipeline struct {
	Name string
	Doc  string
	Text string // in terms of passes of the table
}

// CostModel gives costs to nodes that carry none. A model must answer from the
// node, its types (symbols at their hints) and its group alone, and the same on
// every rank. Its methods may be called from several goroutines.
type CostModel interface {
	// NodeMs is the time of a node in milliseconds: of a collective on its
	// communication stream, of another node on the compute stream. ok is false if
	// the model does not know; the passes then reckon with zero.
	NodeMs(n *ir.Node) (ms float64, ok bool)

	// CommMs is the time of one collective that moves size bytes, where size is
	// the sum over its members of max(operand bytes, result bytes). It is how
	// buckets are judged before they exist.
	CommMs(op ir.Op, g *ir.Group, r ir.Reduction, size int64) (ms float64, ok bool)
}
