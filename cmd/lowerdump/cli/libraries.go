package cli

import (
	"flag"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/cudnn"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/kernels"
)

// libraryFlags say how GPUs are used: where NVIDIA's libraries are, for a machine on
// which the loader does not find them by their names, and what communication gets.
type libraryFlags struct {
	cublasLt, cudnn, nvrtc, cache string
	preload                       listFlag
	staging, fetch                int64
	sms                           int
	noOverlap, noEarly            bool
	matmuls, protocols            string
	transport, nccl               string
}

func (f *libraryFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.cublasLt, "cublaslt", "", "path of libcublasLt, for matmuls; default: found by the loader")
	fs.StringVar(&f.cudnn, "cudnn", "", "folder of libcudnn, for attention and convolutions; default: found by the loader; none: do without")
	fs.StringVar(&f.nvrtc, "nvrtc", "", "path of libnvrtc, which compiles generated kernels; default: found by the loader")
	fs.Var(&f.preload, "preload", "path of a library that cuDNN needs and the loader does not find; repeatable")
	fs.Int64Var(&f.staging, "staging", 0, "staging bytes per GPU and group for collectives overlapped with compute; 0: default, negative: none")
	fs.IntVar(&f.sms, "sms", 0, "multiprocessors that matmuls leave free for communication")
	fs.BoolVar(&f.noOverlap, "no-overlap", false, "choose collective kernels as if none overlapped with compute")
	fs.BoolVar(&f.noEarly, "no-early", false, "disable programmatic dependent launch")
	fs.Int64Var(&f.fetch, "fetch", 0, "bytes of a skinny matmul's weights to prefetch into L2 while the kernel before it runs")
	fs.StringVar(&f.matmuls, "matmuls", "", "calibration `file` with matmul algorithms; default: built-in for the GPU")
	fs.StringVar(&f.protocols, "protocols", "", "calibration `file` with the sizes at which collectives switch protocols; default: built-in for the GPU")
	fs.StringVar(&f.transport, "transport", "", "transport of collectives: symmetric or nccl; default: symmetric memory for groups with P2P access, else NCCL")
	fs.StringVar(&f.nccl, "nccl", "", "path of libnccl; default: found by the loader")
	fs.StringVar(&f.cache, "cache", "", "folder of compiled kernels; default: in the user's cache folder; none: no cache")
}

// listFlag is a flag that may be given several times.
type listFlag []string

// String is empty: there is no default.
func (l *listFlag) String() string { return "" }

// Set adds a value.
func (l *listFlag) Set(v string) error {
	*l = append(*l, v)
	return nil
}

// options are the device's: matmuls by cuBLASLt, attention by our own kernels and
// cuDNN, convolutions by cuDNN.
func (f *libraryFlags) options() (device.Options, error) {
	o := device.Options{NVRTC: f.nvrtc, Cache: f.cache, Staging: f.staging, NoOverlap: f.noOverlap, NoDependentLaunch: f.noEarly, Prefetch: f.fetch, SMs: f.sms,
		Transport: topo.Transport(f.transport), NCCL: device.NCCLOptions{Path: f.nccl}}
	switch o.Transport {
	case "", topo.Symmetric, topo.NCCL:
	default:
		return o, usagef("-transport=%s: want symmetric or nccl", f.transport)
	}
	o.Libraries = device.Standard(device.Paths{CuBLASLt: f.cublasLt, CuDNN: cudnn.Options{Dir: f.cudnn, Preload: f.preload}, NoCuDNN: f.cudnn == "none"})
	if f.matmuls != "" {
		_, err := readCalibration(f.matmuls, func(c *calibration.File) (err error) {
			if o.Matmuls, err = lt.TuningOf(c); o.Matmuls == nil && err == nil {
				err = &calibration.ValueError{Path: "matmuls", Msg: "missing, but -matmuls needs them"}
			}
			return err
		})
		if err != nil {
			return o, err
		}
	}
	if f.protocols != "" {
		_, err := readCalibration(f.protocols, func(c *calibration.File) (err error) {
			if o.Group.Calibration, err = kernels.CalibrationOf(c); err == nil && len(c.Protocols) == 0 {
				err = &calibration.ValueError{Path: "protocols", Msg: "missing, but -protocols needs them"}
			}
			return err
		})
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
