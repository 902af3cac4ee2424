//go:build !linux

package progen

import (
	"context"

	"github.com/seed-ee968945/concert/interp"
)

// FakeCUDA runs programs on GPUs that are this machine's memory, of which there are
// none here.
func FakeCUDA(bool) func(ctx context.Context, c *Compiled) ([][][]interp.Tensor, error) { return nil }
