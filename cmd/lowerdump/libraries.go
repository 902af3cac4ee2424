package main

import (
	"errors"
	"flag"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/cuda/cudnn"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/library"
)

// libraryFlags say where NVIDIA's libraries are, for a machine on which the loader
// does not find them by their names.
type libraryFlags struct {
	cublasLt, cudnn, nvrtc, cache string
	preload                       listFlag
}

func (f *libraryFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.cublasLt, "cublaslt", "", "path of libcublasLt, for products; empty: where the loader finds it")
	fs.StringVar(&f.cudnn, "cudnn", "", "folder of libcudnn, for attention; empty: where the loader finds it, none: without it")
	fs.StringVar(&f.nvrtc, "nvrtc", "", "path of libnvrtc, which compiles generated kernels; empty: where the loader finds it")
	fs.Var(&f.preload, "preload", "path of a library that cuDNN wants and the loader would not find; may be given several times")
	fs.StringVar(&f.cache, "cache", "", "folder of compiled kernels; empty: in the user's cache folder, none: no cache")
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

// options are the device's: products by cuBLASLt, attention by cuDNN if there is one.
func (f *libraryFlags) options() device.Options {
	o := device.Options{NVRTC: f.nvrtc, Cache: f.cache}
	o.Libraries = device.Standard(device.Paths{CuBLASLt: f.cublasLt, CuDNN: cudnn.Options{Dir: f.cudnn, Preload: f.preload}})
	for i, open := range o.Libraries {
		if i > 0 && f.cudnn == "" {
			o.Libraries[i] = ifThere(open)
		}
	}
	if f.cudnn == "none" {
		o.Libraries = o.Libraries[:1]
	}
	return o
}

// ifThere does without a library that this machine lacks: a program without
// attention does not need it, and one with attention is told why it cannot run.
func ifThere(open device.OpenLibrary) device.OpenLibrary {
	return func(e device.LibraryEnv) (library.Library, error) {
		l, err := open(e)
		if errors.Is(err, cuda.ErrNoDriver) {
			return nothing{err}, nil
		}
		return l, err
	}
}

// nothing stands for a library that is missing: it serves no call and says why.
type nothing struct{ why error }

// Plan serves nothing.
func (n nothing) Plan(*library.Call) (library.Step, error) {
	return nil, errors.Join(library.ErrNotServed, n.why)
}

// Close has nothing to free.
func (nothing) Close() error { return nil }
