module github.com/seed-ee968945/concert/integrations/gomlx

go 1.26.0

// The newest of GoMLX that Go 1.26 builds; later versions ask for Go 1.27.
require (
	github.com/gomlx/compute v0.1.6
	github.com/pkg/errors v0.9.1
	github.com/seed-ee968945/concert v0.0.0
)

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/exp v0.0.0-20261014143641-f0251eb4aa3e // indirect
	golang.org/x/sys v0.49.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)

replace github.com/seed-ee968945/concert => ../..
