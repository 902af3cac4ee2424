package pytext

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// dtypeNames pairs element types with PyTorch's names for them, its own first.
var dtypeNames = [...]struct {
	d     dtype.DType
	names []string
}{
	{dtype.F64, []string{"float64", "double"}}, {dtype.F32, []string{"float32", "float"}},
	{dtype.F16, []string{"float16", "half"}}, {dtype.BF16, []string{"bfloat16"}},
	{dtype.I64, []string{"int64", "long"}}, {dtype.I32, []string{"int32", "int"}},
	{dtype.I16, []string{"int16", "short"}}, {dtype.I8, []string{"int8"}},
	{dtype.U64, []string{"uint64"}}, {dtype.U32, []string{"uint32"}}, {dtype.U16, []string{"uint16"}},
	{dtype.U8, []string{"uint8"}}, {dtype.Bool, []string{"bool"}},
	{dtype.F8E4M3FN, []string{"float8_e4m3fn"}}, {dtype.F8E5M2, []string{"float8_e5m2"}}, {dtype.F8E8M0FNU, []string{"float8_e8m0fnu"}},
	{dtype.F8E4M3FNUZ, []string{"float8_e4m3fnuz"}}, {dtype.F8E5M2FNUZ, []string{"float8_e5m2fnuz"}},
}

// ParseDType returns the element type of PyTorch's name for it.
func ParseDType(s string) (dtype.DType, bool) {
	for _, t := range dtypeNames {
		if slices.Contains(t.names, s) {
			return t.d, true
		}
	}
	return dtype.Invalid, false
}

// DTypeName is PyTorch's name of an element type.
func DTypeName(d dtype.DType) string {
	for _, t := range dtypeNames {
		if t.d == d {
			return t.names[0]
		}
	}
	return d.String()
}
