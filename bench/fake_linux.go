package bench

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
)

// fakeDriver drives GPUs that are this machine's memory, for tests.
func fakeDriver(n int) (driver.Driver, error) { return fake.New(n), nil }
