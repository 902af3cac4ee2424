package stablehlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/internal/library"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// library imports a call that is attention; false if it is none that concert has.
func (im *importer) library(o *mlir.Operation, target string, in []*value) ([]*value, bool, error) {
	ranks := make([]int, len(in))
	for i, v := range in {
		ranks[i] = len(v.typ.Shape)
	}
	with := library.Attention(o, target, ranks)
	if with == nil {
		return nil, false, nil
	}
	im.op = with
	out, err := attention(strings.Contains(target, "ackward"))(im, im.op, in)
	return out, true, err
}
