package program

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Loops and branches. The list of instructions has them as brackets:
//
//	loop () -> (carried)     case (number) -> (results)
//	  ...                    branch
//	test (go on?) -> ()        ...
//	  ...                    branch
//	end                        ...
//	                         end
//
// A loop runs what comes before its test, goes on with what comes after it as long as the
// number that test reads is not 0, and then begins again. A case runs the branch of its number,
// the last one if there is none of that number. Each of these lines joins all streams: what
// comes before it has finished when what comes after it begins, on all streams of the rank.
// So nothing of one iteration runs beside anything of another, and nothing inside beside what
// stands around it. Events that are recorded inside are waited for inside, in the same branch.

// Block is a loop or a case.
type Block struct {
	At, End int
	Parts   []int // of a loop its test, of a case where its branches begin
}

// Joins reports whether an instruction is a bracket of a block, which joins all streams.
func (in *Instr) Joins() bool { return in.Kind >= Loop && in.Kind <= End }

// HasControlFlow reports whether numbers decide what runs: whether there are loops or cases.
func (p *Program) HasControlFlow() bool {
	for i := range p.Instrs {
		if p.Instrs[i].Joins() {
			return true
		}
	}
	return false
}

// Blocks gives each bracket its block, by instruction; nil for all others, and where there is
// no bracket. The error is about brackets that do not match.
func (p *Program) Blocks() ([]*Block, error) {
	var out, open []*Block
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if !in.Joins() {
			continue
		}
		if out == nil {
			out = make([]*Block, len(p.Instrs))
		}
		if in.Kind == Loop || in.Kind == Case {
			open = append(open, &Block{At: i})
		}
		if len(open) == 0 {
			return nil, fmt.Errorf("instruction %d: %s outside of a loop or a case", i, in.Kind)
		}
		b := open[len(open)-1]
		out[i] = b
		loop := p.Instrs[b.At].Kind == Loop
		switch in.Kind {
		case Test, Branch:
			if loop != (in.Kind == Test) || loop && len(b.Parts) > 0 {
				return nil, fmt.Errorf("instruction %d: %s in a %s that has one already, or none", i, in.Kind, p.Instrs[b.At].Kind)
			}
			if b.Parts = append(b.Parts, i); !loop && b.Parts[0] != b.At+1 {
				return nil, fmt.Errorf("instruction %d: something is between case and its first branch", b.At)
			}
		case End:
			if len(b.Parts) == 0 {
				return nil, fmt.Errorf("instruction %d: a loop ends without a test, or a case without a branch", i)
			}
			b.End, open = i, open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("instruction %d: %s has no end", open[len(open)-1].At, p.Instrs[open[len(open)-1].At].Kind)
	}
	return out, nil
}

// checkBracket checks the operands of a bracket.
func (p *Program) checkBracket(in *Instr) error {
	ins, number := 0, "an integer or a truth value"
	switch in.Kind {
	case Test:
		ins, number = 1, "a truth value"
	case Case:
		ins = 1
	}
	switch {
	case in.Stream != 0:
		return errors.New("loops and branches are on the first stream")
	case len(in.Ins) != ins || len(in.Outs) > 0 && in.Kind != Loop && in.Kind != Case:
		return fmt.Errorf("%d operands and %d results", len(in.Ins), len(in.Outs))
	}
	if ins == 1 {
		if t := &in.Ins[0]; len(t.Shape) > 0 || t.DType != dtype.Bool && (in.Kind == Test || !t.DType.IsInt()) {
			return fmt.Errorf("goes by %s without dimensions", number)
		}
	}
	if err := p.checkTensors(in.Ins); err != nil {
		return err
	}
	return p.checkTensors(in.Outs)
}
