package stablehlo

import (
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/dimensions"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Module is a module that can be imported.
type Module struct {
	*mlir.Module

	// Missing says what the text leaves out that a run needs, at its place; nil: nothing.
	Missing error

	find    Shardings // what is said of functions; nil: nothing
	written bool      // attention that is spelled out stays as it is
	entry   string    // which function is the program; empty: @main, or the only public one
}

// AsWritten keeps what is imported of the module from here on as it is written: programs do not have
// attention that is recognised. Attention does not round its scores and weights to operands'
// types, and gives zeros where all scores of a query are -Inf, and a softmax NaN.
func (m *Module) AsWritten() { m.written = true }

// Start says which function [Module.Program] makes a program of: empty is @main, or the only one that
// is not private.
func (m *Module) Start(name string) { m.entry = name }

// Parse reads the module of a text, see [mlir.Parse]. The error is a *diag.Finding with a place.
func Parse(name, text string) (*Module, error) {
	m, err := mlir.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return &Module{Module: m}, nil
}

// Layouts says where the dimensions of a convolution's operands and result are: batch (of
// the second operand what comes out), feature, and those of the window. The error is a
// *diag.Finding at the operation.
func Layouts(m *mlir.Module, o *mlir.Operation, rank int) ([3][]int64, error) {
	return dimensions.Layouts(m, o, rank)
}

// Pairs are the dimensions of both operands of a product that belong together: batches, and
// those that are summed over. The error is a *diag.Finding at the operation.
func Pairs(m *mlir.Module, o *mlir.Operation) (batch, contracting [2][]int64, err error) {
	return dimensions.Pairs(m, o)
}
