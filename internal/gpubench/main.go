// Command gpubench checks and times concert's collectives on the GPUs of one host.
//
//	gpubench -mode verify            every collective, protocol and size, bit for bit
//	gpubench -mode tune              protocols, grids and blocks against each other
//	gpubench -mode bench -out F      what the planner chooses; one JSON line a figure
//	gpubench -mode links             what the links carry
//	gpubench -mode litmus            whether barriers order the data of other kernels
//	gpubench -mode soak              100,000 calls of all protocols in turn
//	gpubench -mode bucket            the nine gathers of a transformer layer in one launch
//	gpubench -mode host              what a launch costs the host, from Go and from C
//
// A figure is the time of one call, replayed from a CUDA graph behind a delay, the
// median of several replays on the slowest rank. Inputs are random and differ by
// rank; results are compared on the device with the sum in rank order.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/seed-ee968945/concert/cuda"
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
	only    string
}

func (b *bench) report(f figure) {
	f.World = b.n
	fmt.Printf("%-15s %-28s %11d B %10.2f us %8.1f GB/s %s\n", f.Op, f.Impl, f.Bytes, f.US, float64(f.Bytes)/f.US/1e3, f.Note)
	if b.out != nil {
		line, _ := json.Marshal(f)
		fmt.Fprintf(b.out, "%s\n", line)
	}
}

func main() {
	mode := flag.String("mode", "verify", "comma-separated: verify, tune, bench, links, litmus, soak, bucket, host, info")
	ranks := flag.Int("ranks", 0, "ranks, 0 for one per device")
	share := flag.Bool("share", false, "all ranks on device 0")
	out := flag.String("out", "", "file for JSON lines")
	limit := flag.Uint64("max", 1<<30, "largest buffer in bytes")
	least := flag.Uint64("min", 1<<10, "smallest buffer that tune tries, in bytes")
	only := flag.String("only", "", "only figures whose name contains this")
	ptx := flag.Bool("ptx", false, "load PTX even where machine code exists")
	flag.Parse()
	if err := run(*mode, *ranks, *share, *out, *least, *limit, *only, *ptx); err != nil {
		fmt.Fprintln(os.Stderr, "gpubench:", err)
		os.Exit(1)
	}
}

func run(mode string, ranks int, share bool, out string, least, limit uint64, only string, ptx bool) error {
	drv, err := cuda.Open("")
	if err != nil {
		return err
	}
	defer drv.Close()
	infos, err := drv.Devices()
	if err != nil {
		return err
	}
	v, err := drv.Version()
	if err != nil {
		return err
	}
	fmt.Printf("driver %d, %d devices, %s, %d multiprocessors, fabric %v\n", v, len(infos), infos[0].Name, infos[0].SMs, infos[0].Fabric)
	if ranks == 0 {
		ranks = len(infos)
	}
	devs := make([]int, ranks)
	for i := range devs {
		if !share {
			devs[i] = i
		}
	}
	r, err := newRig(drv, devs, share, limit, ptx)
	if err != nil {
		return err
	}
	defer r.close()
	b := &bench{rig: r, minSize: least, maxSize: limit, only: only}
	if out != "" {
		if b.out, err = os.Create(out); err != nil {
			return err
		}
		defer b.out.Close()
	}
	for _, m := range strings.Split(mode, ",") {
		var err error
		switch m {
		case "verify":
			err = b.verify()
		case "tune":
			err = b.tune()
		case "bench":
			err = b.bench()
		case "links":
			err = b.links()
		case "bucket":
			err = b.bucket()
		case "soak":
			err = b.soak()
		case "host":
			err = b.host()
		case "litmus":
			err = b.litmus()
		case "info":
			err = b.info()
		default:
			err = fmt.Errorf("unknown mode %q", m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}
