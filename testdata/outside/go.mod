module example.com/outside

go 1.26.0

require github.com/seed-ee968945/concert v0.0.0

require (
	github.com/NVIDIA/go-nvml v0.13.3-0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace github.com/seed-ee968945/concert => ../..
