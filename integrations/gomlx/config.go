package gomlx

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// options are what a configuration says.
type options struct {
	kind     string // host, cuda or fake
	devices  int
	mesh     *compute.Mesh // of programs that know of one device; nil: none
	pipeline string
	memory   int64   // that a rank may need, 0: any
	cache    string  // folder, empty: none
	dumps    string  // folder, empty: none
	place    *rt.Env // of this process among those of a launcher; nil: all devices are its own
	sharded  bool    // new values of variables lie as the old ones
	narrow   bool    // parts of sums over devices are rounded as the sums are
}

// New makes a backend. config is a list of key=value, separated by commas:
//
//	devices=N               how many devices there are, default 1
//	device=host|cuda|fake   what computes; fake runs the kernels of GPUs on the host
//	mesh=data:2/model:2     programs that know of one device run on all of this mesh, which
//	                        has as many devices: see mesh.go
//	passes=PIPELINE         named pipeline of concert's passes, default "default", or
//	                        "cuda" on GPUs; cuda{excess-precision=true} keeps bfloat16 in
//	                        float32 between the operations of a kernel, as XLA does
//	memory=4GiB             what a computation may need on each device: communication is
//	                        hidden as far as that goes, gathered weights that do not fit
//	                        are gathered again for backward, and more is an error
//	cache=FOLDER            keeps compiled programs there, for other processes
//	dump=FOLDER             writes every computation there as StableHLO, for lowerdump
//	launch=env              ranks are processes, each with a device, which a launcher such as
//	                        torchrun starts with the same program: see launched.go
//	variables=asked|sharded how results are that are new values of sharded variables, where
//	                        a computation asks for them replicated, as GoMLX's Trainer does
//	                        of all results: as asked, or as the variables
//	sums=wide|narrow        narrow: where a program rounds a sum over devices to 16-bit floats,
//	                        each device rounds its part: half the bytes, as PyTorch's FSDP
//	                        reduces gradients
func New(config string) (compute.Backend, error) {
	b := &Backend{maker: sync.OnceValues(executableDigest), ctx: context.Background(), worlds: map[string]*world{}}
	b.kind = "host"
	for _, kv := range strings.Split(config, ",") {
		if kv == "" {
			continue
		}
		if err := b.set(kv); err != nil {
			return nil, err
		}
	}
	if err := b.count(); err != nil {
		return nil, err
	}
	if b.pipeline == "" {
		b.pipeline = b.device().Pipeline()
	}
	var err error
	if b.passes, err = standard.Table().Parse(b.pipeline); err != nil {
		return nil, errors.Wrapf(err, "concert: passes=%s", b.pipeline)
	}
	if b.memory > 0 {
		b.passes, err = capped(b.passes, b.memory)
	}
	return b, err
}

// set takes one key=value.
func (o *options) set(kv string) (err error) {
	k, v, _ := strings.Cut(kv, "=")
	switch k {
	case "devices":
		if o.devices, err = strconv.Atoi(v); err != nil || o.devices < 1 {
			return errors.Errorf("concert: devices=%s: want a number of devices", v)
		}
	case "device":
		o.kind, err = oneOf(k, v, "host", "cuda", "fake")
	case "mesh":
		o.mesh, err = parseMesh(v)
	case "passes":
		o.pipeline = v
	case "memory":
		o.memory, err = parseBytes(v)
	case "cache":
		o.cache, err = folder(k, v)
	case "dump":
		o.dumps, err = folder(k, v)
	case "launch":
		if _, err = oneOf(k, v, "env"); err != nil {
			return err
		}
		env, err := rt.EnvFrom(os.Getenv)
		if err != nil {
			return errors.WithStack(err)
		}
		o.place = &env
	case "variables":
		v, err = oneOf(k, v, "asked", "sharded")
		o.sharded = v == "sharded"
	case "sums":
		v, err = oneOf(k, v, "wide", "narrow")
		o.narrow = v == "narrow"
	default:
		return errors.Errorf("concert: no option %q: there are devices, device, mesh, passes, memory, cache, dump, launch, variables and sums", kv)
	}
	return err
}

// count settles how many devices there are.
func (o *options) count() error {
	if o.place != nil {
		if o.devices > 0 && o.devices != o.place.World {
			return errors.Errorf("concert: devices=%d, and the launcher has started %d ranks", o.devices, o.place.World)
		}
		o.devices = o.place.World
	}
	if o.mesh != nil {
		if o.devices > 0 && o.devices != size(*o.mesh) {
			return errors.Errorf("concert: a mesh of %d devices, and there are %d", size(*o.mesh), o.devices)
		}
		o.devices = size(*o.mesh)
	}
	o.devices = max(o.devices, 1)
	return nil
}

func oneOf(key, v string, all ...string) (string, error) {
	if !slices.Contains(all, v) {
		return "", errors.Errorf("concert: %s=%s: there are %s", key, v, strings.Join(all, ", "))
	}
	return v, nil
}

// folder makes a folder that is not there yet.
func folder(key, v string) (string, error) {
	return v, errors.Wrapf(os.MkdirAll(v, 0o777), "concert: %s=%s", key, v)
}

// parseBytes reads a size of memory.
func parseBytes(text string) (int64, error) {
	number, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, errors.Errorf("concert: memory=%s: want a number of bytes, or of KiB, MiB, GiB or TiB, such as 4GiB", text)
	}
	return n << shift, nil
}

// capped is a pipeline whose passes that know of a cap of memory have this one.
func capped(p *passes.Pipeline, memory int64) (*passes.Pipeline, error) {
	specs := make([]string, p.Len())
	for i := range specs {
		specs[i] = p.Spec(i)
		has := func(o passes.Option) bool { return o.Name == "cap" && o.Kind == passes.KindBytes }
		if !slices.ContainsFunc(p.Pass(i).Options, has) {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimSuffix(specs[i], "}"), "{")
		if rest != "" {
			rest = "," + rest
		}
		specs[i] = fmt.Sprintf("%s{cap=%d%s}", name, memory, rest)
	}
	return standard.Table().Parse(strings.Join(specs, ","))
}
