package cli

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/passes"
)

// pricing says where costs come from, and whether passes that use them are proved.
type pricing struct {
	costs   string // file of a calibration, or empty
	machine string // name or file of a description
	comm    string // traced or concert: whose collectives, where nothing was measured
	reprice bool   // the machine goes before FILE

	validate passes.ValidateMode // whether passes are proved

	read *tables // shared by copies; nil: every use reads
}

// tables keeps the calibrations that were read, by file: a command asks for its own
// again and again. What it gives is not to be changed.
type tables struct {
	mu   sync.Mutex
	have map[string]*calibration.File
}

func (t *tables) get(name string) (*calibration.File, error) {
	if t == nil {
		return readCalibration(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.have[name]; m != nil {
		return m, nil
	}
	m, err := readCalibration(name)
	if err != nil {
		return nil, err
	}
	if t.have == nil {
		t.have = map[string]*calibration.File{}
	}
	t.have[name] = m
	return m, nil
}

func readCalibration(name string, check ...func(*calibration.File) error) (*calibration.File, error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return calibration.Read(name, r, check...)
}

func (f *pricing) define(fs *flag.FlagSet) {
	f.read = new(tables)
	f.validate = passes.ValidateSmall
	fs.BoolFunc("validate", "prove after every pass, and for the lowered program, that the computation is unchanged; default: only up to 20,000 nodes", func(text string) error {
		on, err := strconv.ParseBool(text)
		if f.validate = passes.ValidateNever; on {
			f.validate = passes.ValidateAlways
		}
		return err
	})
	fs.StringVar(&f.costs, "costs", "", "calibration `file` (lowerdump calibrate); its measurements override the costs in FILE")
	fs.StringVar(&f.comm, "comm", "traced", "costs of collectives that are not in -costs: those in FILE (traced), or of concert's collectives on H200s (concert)")
	fs.StringVar(&f.machine, "machine", "h200", "`machine` whose model prices everything without a measured or attached cost: a100, h100, h200, b200, or a machine file")
	fs.BoolVar(&f.reprice, "reprice", false, "ignore the costs in FILE in favour of -machine and -comm")
}

// target is what a program is compiled for on that device.
func (f *pricing) target(d compile.Device) (compile.Target, error) {
	base, err := f.base()
	if err != nil {
		return compile.Target{}, err
	}
	m, err := f.measured()
	return compile.Target{Device: d, Costs: base, Measured: m, Reprice: f.repricing()}, err
}

// repricing is which costs in FILE give way.
func (f *pricing) repricing() compile.Reprice {
	switch {
	case f.reprice:
		return compile.RepriceAll
	case f.comm == ownComm:
		return compile.RepriceCollectives
	}
	return compile.RepriceNothing
}

// base is the model without what was measured. The machine whose collectives are
// known best is the one that the graphs were traced on.
func (f *pricing) base() (*cost.Model, error) {
	if !slices.Contains([]string{"", "traced", ownComm}, f.comm) {
		return nil, usagef("-comm=%s: want traced or concert", f.comm)
	}
	name := f.machine
	if name == "" {
		name = "h200"
	}
	if slices.Contains(cost.Machines(), name) {
		m, err := cost.LookupMachine(name)
		if err != nil {
			return nil, err
		}
		switch {
		case f.comm == ownComm:
			return &cost.Model{Table: cost.Concert(), Impl: calibration.Own, Machine: m}, nil
		case name == "h200":
			return &cost.Model{Table: cost.H200(), Machine: m}, nil
		}
		return &cost.Model{Machine: m}, nil
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, usagef("-machine=%s: want %s or a machine file: %v", name, strings.Join(cost.Machines(), ", "), err)
	}
	defer r.Close()
	m, err := cost.ReadMachine(name, r)
	if err != nil {
		return nil, err
	}
	return &cost.Model{Machine: m}, nil
}

// measured is the calibration, nil if there is none.
func (f *pricing) measured() (*calibration.File, error) {
	if f.costs == "" {
		return nil, nil
	}
	return f.read.get(f.costs)
}

// ownComm is the value of -comm for this runtime's collectives.
const ownComm = "concert"
