// Package machine is the machine under the kernels that work with matrix fragments and with
// copies that run beside them: those of packages attention and gemm. Package machinetest runs
// such kernels without a GPU.
package machine

import _ "embed"

// Source is what a kernel's text comes after. BF16 is defined before it, 1 or 0.
//
//go:embed device.cuh
var Source string
