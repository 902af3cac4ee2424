package fx

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/diag"
)

// Error says what is wrong with a graph file, or why a graph cannot be exported,
// and where: the node and field, and within Python text the column. Error prints
// it with the text and a caret.
type Error struct {
	File  string // what the reader was told the file is called
	Node  string // the node's name, "" for the document itself
	Loc   string // the node's place in its author's source, if the file has it
	Field string // the node's field, "" for the node as a whole
	Rule  string // stable name of what was broken
	Msg   string
	text  string   // the field's text to show, if any
	pos   diag.Pos // place in text, if known
	size  int      // bytes to underline
	cause error
}

// Error formats the message with file, node, field and column.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	f := &diag.Finding{Rule: e.Rule, Msg: e.Msg, Len: e.size}
	name := e.File
	if e.Node != "" {
		name += fmt.Sprintf(": node %q", e.Node)
	}
	if e.Field != "" {
		name += ": " + e.Field
	}
	f.Source, f.Pos = diag.NewSource(name, e.text), e.pos
	if e.Loc != "" {
		return f.Error() + "\n    from " + e.Loc
	}
	return f.Error()
}

// Unwrap returns the verifier's findings, if the error stands for them.
func (e *Error) Unwrap() error { return e.cause }

// Warning is a remark about a graph that was imported: Node was imported in a
// way that its reader may not expect.
type Warning struct {
	Node string
	Loc  string // the node's place in its author's source, if the file has it
	Rule string // "opaque": an unknown operator; "mutation": an effect on an input that is not kept; "assertion": a condition on a tensor's values that runs do not check
	Msg  string
}

// String formats the warning as one line, with a second that says where the operator stands
// in its author's source.
func (w Warning) String() string {
	if w.Loc != "" {
		return fmt.Sprintf("node %q: warning[%s]: %s\n    from %s", w.Node, w.Rule, w.Msg, w.Loc)
	}
	return fmt.Sprintf("node %q: warning[%s]: %s", w.Node, w.Rule, w.Msg)
}

// errorf makes an error about a field of a node.
func (f *File) errorf(node, field, rule, format string, args ...any) *Error {
	e := &Error{File: f.label, Node: node, Field: field, Rule: rule, Msg: fmt.Sprintf(format, args...)}
	if i := slices.IndexFunc(f.Nodes, func(n Node) bool { return n.Name == node }); i >= 0 {
		e.Loc = f.Nodes[i].Loc
	}
	return e
}
