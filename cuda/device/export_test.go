package device

import (
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
)

// SetTimeout changes how long a rank's waits may take from now on: tests of what is late let
// everything before it take its time.
func SetTimeout(r *rt.Rank, limit time.Duration) { r.Device().(*Device).spec.Timeout = limit }

// Drawn are the types of which a GPU has random numbers.
var Drawn = drawn
