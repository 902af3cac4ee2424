package bench

import "github.com/seed-ee968945/concert/cuda"

// fakeDriver drives GPUs that are this machine's memory, for tests.
func fakeDriver(n int) (cuda.Driver, error) { return cuda.NewFake(n), nil }
