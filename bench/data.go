package bench

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// readData reads the values of inputs that are not free: buffers and constants of a traced
// model, which the file calls by the traced names.
func (j *Job) readData() error {
	if j.Data == "" || j.Inputs != "" {
		return nil
	}
	file, err := safetensors.ReadFile(j.Data)
	if err != nil {
		return err
	}
	slots := interp.InputSlots(j.pair.Forward)
	j.data = make([]interp.Tensor, len(slots))
	for k, s := range slots {
		t, ok := file.Get(s.Value.Def().Meta().Str(fx.MetaName, s.Name))
		if !ok {
			continue
		}
		shape, fixed := s.Type.Shape().Static()
		if s.Async || !fixed || t.DType != s.Type.DType() || !slices.Equal(t.Shape, shape) {
			return fmt.Errorf("%s: tensor %s is %s, input %%%s takes %s", j.Data, t.Name, ir.Tensor(t.DType, t.Shape...), s.Name, s.Type)
		}
		j.data[k] = interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data}
	}
	return nil
}

// fixed is the value of forward input number k, if it is not free.
func (j *Job) fixed(k int) (interp.Tensor, bool) {
	if j.data == nil || !j.data[k].DType.Valid() {
		return interp.Tensor{}, false
	}
	return j.data[k], true
}
