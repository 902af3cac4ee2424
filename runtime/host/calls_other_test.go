//go:build !linux

package host_test

import (
	"context"
	"errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

const envCalls = "HOST_CALLS"

func obeys() error                           { return errors.ErrUnsupported }
func lives(context.Context, rt.Config) error { return errors.ErrUnsupported }
