package ir

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
)

// Attrs are the attributes or annotations of a node: an immutable list of named values in
// ascending order of name. Read it with Int, Float, Bool, Str, Ints and Strs; With and
// Without return changed copies; Attrs(nil) is empty.
type Attrs = attr.List

// AttrValue is one immutable value of an attribute.
type AttrValue = attr.Value

// A builds attributes from alternating names and values, as in A("dim", 0, "keepdim",
// true). A value is an int or int64, a float64, a bool, a string, a DType, a []int64 or
// []int, or a []string. Anything else makes a list that no operation accepts.
func A(kv ...any) Attrs { return attr.Of(kv...) }

// Finding is one thing that is wrong with a text or a graph: the rule that it breaks, where
// (Source.Name, Pos.Line and Pos.Col, counted from 1, zero where a graph was built in Go),
// how many bytes of that line, what is wrong and what to do about it.
type Finding = diag.Finding

// Findings is the error of Parse, Verify, Builder.Finish and passes.Table.Parse; find it
// with errors.As(err, &findings) of a *Findings. Its Findings are in the order of the text.
type Findings = diag.Error

// Pos is a line and a byte column in a source, from 1; the zero Pos is unknown.
type Pos = diag.Pos

// Source is a named text that positions point into.
type Source = diag.Source
