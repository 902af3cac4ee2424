// Command gpubench checks and times concert's collectives on the GPUs of one host.
//
//	gpubench -mode bench -out F      what the planner chooses; one JSON line a figure
//	gpubench -mode links             what the links carry
//	gpubench -mode litmus            whether barriers order the data of other kernels
//	gpubench -mode cold              whether barriers order what is sent to memory never touched before
//	gpubench -mode soak              100,000 calls of all protocols, each of them checked
//	gpubench -mode bucket            the nine gathers of a transformer layer in one launch
//	gpubench -mode large             every form of the collectives from 16 MiB on
//	gpubench -mode overlap           collectives beside matmuls, each alone and both
//	gpubench -mode skew              how far apart the ranks' launches arrive
//	gpubench -mode calibrate         where protocols take over from each other, as a file for groups
//	gpubench -mode matmuls           the fastest algorithms of the matmuls in a file
//	gpubench -mode host              what a launch costs the host, from Go and from C
//
// A figure is the time of one call, replayed from a CUDA graph behind a delay, the
// median of several replays on the slowest rank. Inputs are random and differ by
// rank; results are compared on the device with the sum in rank order.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

type figure struct {
	Op    string  `json:"op"`
	Impl  string  `json:"impl"`
	Bytes uint64  `json:"bytes"`
	US    float64 `json:"us"`
	World int     `json:"world"`
	Note  string  `json:"note,omitempty"`
}

type bench struct {
	*rig
	out     *os.File
	minSize uint64
	maxSize uint64
	only    *regexp.Regexp
	blas    string
	nvrtc   string
	shapes  string
	tuning  string
	calls   int
}

func (b *bench) report(f figure) {
	f.World = b.n
	fmt.Printf("%-15s %-28s %11d B %10.2f us %8.1f GB/s %s\n", f.Op, f.Impl, f.Bytes, f.US, float64(f.Bytes)/f.US/1e3, f.Note)
	if b.out != nil {
		line, _ := json.Marshal(f)
		fmt.Fprintf(b.out, "%s\n", line)
	}
}

// options are the command line.
type options struct {
	mode, out, only string
	ranks           int
	share, ptx      bool
	procs           bool
	least, limit    uint64
	staging, piece  uint64
	reduce          uint64
	timeout         time.Duration
	blas, nvrtc     string
	shapes          string
	images, tuning  string
	use             string
	wrap            string
	calls           int
	region          uint64
	fabric          bool
}

func main() {
	var o options
	flag.StringVar(&o.mode, "mode", "soak", "comma-separated: bench, links, litmus, cold, soak, bucket, host, large, overlap, skew, calibrate, matmuls")
	flag.IntVar(&o.ranks, "ranks", 0, "ranks, 0 for one per device")
	flag.BoolVar(&o.share, "share", false, "all ranks on device 0")
	flag.BoolVar(&o.procs, "procs", false, "one process per rank instead of one for all")
	flag.StringVar(&o.out, "out", "", "file for JSON lines")
	flag.Uint64Var(&o.least, "min", 1<<10, "smallest buffer that is timed, in bytes")
	flag.Uint64Var(&o.limit, "max", 1<<30, "largest buffer in bytes")
	flag.Uint64Var(&o.staging, "staging", 512<<20, "bytes of the group's staging")
	flag.Uint64Var(&o.piece, "piece", 0, "co-resident kernels move a collective's pieces of fewer bytes than that while it overlaps with compute, 0 for the default")
	flag.Uint64Var(&o.reduce, "reduce", 0, "co-resident kernels do a collective's reductions of at most that many bytes while it overlaps with compute, 0 for the default")
	flag.StringVar(&o.only, "only", "", "only figures whose name matches this regular expression")
	flag.BoolVar(&o.ptx, "ptx", false, "load PTX even where machine code exists")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Second, "how long a wait in a collective may last")
	flag.StringVar(&o.blas, "blas", "", "cuBLASLt library for -mode overlap and matmuls, empty for the usual names")
	flag.StringVar(&o.nvrtc, "nvrtc", "", "NVRTC library for -mode matmuls, empty for the usual names")
	flag.StringVar(&o.shapes, "shapes", "shapes.json", "file of -mode matmuls: JSON, a matmul or a list of those with one left operand a line")
	flag.StringVar(&o.images, "images", "", "folder of NAME.cubin files to load in place of the embedded images")
	flag.StringVar(&o.tuning, "tuning", "tuning.json", "calibration file that -mode calibrate and matmuls add to")
	flag.StringVar(&o.use, "use", "", "calibration file to plan with, empty for the defaults")
	flag.StringVar(&o.wrap, "wrap", "", "with -procs, command and arguments under which each rank's process runs, %r is its rank")
	flag.Uint64Var(&o.region, "region", 64<<20, "bytes of the group's scratch for packets that are their own flags")
	flag.IntVar(&o.calls, "calls", 100_000, "calls of -mode soak")
	flag.BoolVar(&o.fabric, "fabric", false, "with -procs, share memory by fabric handles instead of file descriptors")
	flag.Parse()
	var err error
	if _, child := os.LookupEnv(envRank); o.procs && !child {
		err = spawn(o)
	} else {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpubench:", err)
		os.Exit(1)
	}
}

// world builds the ranks of this process: all of them, or one.
func world(drv driver.Driver, o options, devices int) (*symm.World, error) {
	wo := worldOptions(o)
	if o.images != "" {
		var err error
		if wo.Images, err = imagesOf(o.images); err != nil {
			return nil, err
		}
	}
	wo.Fabric = o.fabric
	if rank, child := os.LookupEnv(envRank); child {
		r, err := strconv.Atoi(rank)
		if err != nil {
			return nil, err
		}
		job, err := rendezvous.ParseJob(os.Getenv(envJob))
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		g, err := rendezvous.Join(ctx, job, rendezvous.Place{Rank: r, World: o.ranks, Timeout: time.Minute})
		if err != nil {
			return nil, err
		}
		return symm.NewProcessWorld(ctx, drv, g, r%devices, wo)
	}
	devs := make([]int, o.ranks)
	for i := range devs {
		if !o.share {
			devs[i] = i
		}
	}
	return symm.NewLocalWorld(drv, devs, wo)
}

// imagesOf is the embedded images but for those of which dir has NAME.cubin.
func imagesOf(dir string) (*kernels.Set, error) {
	set, err := kernels.NewSet()
	if err != nil {
		return nil, err
	}
	count := 0
	for _, name := range set.Manifest.Names() {
		b, err := os.ReadFile(filepath.Join(dir, name+".cubin"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		set.Replace(name, b)
		count++
	}
	if count == 0 {
		return nil, fmt.Errorf("no image in %s", dir)
	}
	fmt.Printf("%d images from %s\n", count, dir)
	return set, nil
}

func run(o options) error {
	drv, err := driver.Open("")
	if err != nil {
		return err
	}
	return errors.Join(runOn(drv, o), drv.Close())
}

// runOn runs the modes on a driver.
func runOn(drv driver.Driver, o options) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	infos, err := drv.Devices()
	if err != nil {
		return err
	}
	v, err := drv.Version()
	if err != nil {
		return err
	}
	fmt.Printf("driver %d, %d devices, %s, %d multiprocessors, fabric %v\n", v, len(infos), infos[0].Name, infos[0].SMs, infos[0].Fabric)
	if o.ranks == 0 {
		o.ranks = len(infos)
	}
	w, err := world(drv, o, len(infos))
	if err != nil {
		return err
	}
	r, err := newRig(drv, w, o)
	if err != nil {
		return err
	}
	defer r.close()
	b := &bench{rig: r, minSize: o.least, maxSize: o.limit, only: only, blas: o.blas, nvrtc: o.nvrtc, shapes: o.shapes, tuning: o.tuning, calls: o.calls}
	if o.out != "" {
		if b.out, err = os.Create(o.out); err != nil {
			return err
		}
		defer b.out.Close()
	}
	modes := map[string]func() error{"bench": b.bench, "links": b.links, "litmus": b.litmus, "cold": b.cold,
		"soak": b.soak, "bucket": b.bucket, "host": b.host, "large": b.large, "overlap": b.overlap, "skew": b.skew, "calibrate": b.calibrate, "matmuls": b.matmuls}
	for _, m := range strings.Split(o.mode, ",") {
		f, ok := modes[m]
		if !ok {
			return fmt.Errorf("unknown mode %q", m)
		}
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}
