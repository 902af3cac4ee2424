package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

var equivCommand = command{
	name: "equiv", args: "[-mesh=AXES] [-inputs=LIST] [-results=LIST] BEFORE [AFTER]", doc: "proves that two functions are equivalent, or a partitioned program and its single-device original",
	help: `
Without -mesh both are functions of the same ranks, and the proof is that AFTER computes on every
rank what BEFORE does, bit for bit (-reassociate: except for the order of sums;
-excess-precision: except for roundings to 16-bit floats). With -mesh
BEFORE is a single-device program and AFTER the program of each rank of the mesh; the proof is
that AFTER computes BEFORE's results, except for rounding and the order of sums.

-inputs and -results give the sharding of each input and result: the axes along
each dimension, in the order of the signature, separated by semicolons. Omitted inputs are
inferred from the shapes where these are unambiguous; for omitted results any sharding of the
right shape is accepted and printed. Sub-axes are written as in the sdy
dialect, x:(2)4. Without these flags, the annotations of BEFORE are used (sharding=[...], or
StableHLO's shardings), and with one file AFTER is made by lowerdump's own partitioner.

Operations without a rule are listed. Exit status 1 means that no proof was found, not that
the functions differ.

Examples:
  lowerdump equiv before.ir after.ir
  lowerdump equiv annotated.ir
  lowerdump equiv -mesh=data=2,model=4 -inputs='[{data}, {}]; [{}, {model}]' model.ir rank.ir`,
	run: func(_ context.Context, t tool, args []string) error {
		f := equivFlags{}
		files, err := parse("equiv", &f, args)
		if err != nil {
			return err
		}
		if len(files) != 1 && len(files) != 2 {
			return usagef("want BEFORE or BEFORE AFTER, got %s", count(len(files), "file"))
		}
		t.global, t.entry = len(files) == 1, f.fn
		var fs [2]*ir.Func
		for i, file := range files {
			in, err := t.load(file)
			if err != nil {
				return err
			}
			if fs[i], err = in.funcNamed(f.fn); err != nil {
				return err
			}
		}
		if len(files) == 1 {
			m := fs[0].Module().Clone()
			if err := compile.Partition(m, compile.PartitionOptions{}); err != nil {
				return err
			}
			fs[1] = m.Func(fs[0].Name)
		}
		if o, err := mesh.Annotated(fs[0], fs[1]); f.mesh == "" && err == nil {
			return t.onMesh(fs, o)
		} else if f.mesh == "" && len(files) == 1 {
			return fmt.Errorf("%s: %w; give AFTER, too", files[0], err)
		}
		if f.mesh == "" {
			return t.sameRanks(fs, f)
		}
		o, err := f.options()
		if err != nil {
			return err
		}
		return t.onMesh(fs, o)
	},
}

type equivFlags struct {
	fn, mesh, inputs, results string
	rounding                  equiv.Options
}

func (f *equivFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.fn, "func", "", "name of the functions, if the files have several")
	fs.StringVar(&f.mesh, "mesh", "", "axes of the mesh, such as data=2,model=4")
	fs.StringVar(&f.inputs, "inputs", "", "shardings of the inputs, such as [{data}, {}]; [{}, {model}]")
	fs.StringVar(&f.results, "results", "", "shardings of the results")
	fs.BoolVar(&f.rounding.Reassociate, "reassociate", false, "without -mesh: sums may be reordered")
	fs.BoolVar(&f.rounding.ExcessPrecision, "excess-precision", false, "without -mesh: intermediate 16-bit floats may be float32")
}

// proved prints the outcome of a proof.
func (t tool) proved(err error, unproved bool, what string) error {
	if unproved {
		fmt.Fprintln(t.out, err)
		return errFindings
	}
	if err == nil {
		fmt.Fprintln(t.out, "proved equal: "+what)
	}
	return err
}

func (t tool) sameRanks(fs [2]*ir.Func, f equivFlags) error {
	rep, err := equiv.Check(fs[0], fs[1], f.rounding)
	var e *equiv.Error
	what := ""
	if rep != nil {
		what = fmt.Sprintf("%d and %d values", rep.Before, rep.After)
	}
	return t.proved(err, errors.As(err, &e), what)
}

// options are those of a mesh.
func (f *equivFlags) options() (o mesh.Options, err error) {
	if o.Mesh, err = placement.ParseMesh(f.mesh); err != nil {
		return o, usagef("%v", err)
	}
	if o.Inputs, err = placement.ParsePlacements(f.inputs); err != nil {
		return o, usagef("-inputs: %v", err)
	}
	if o.Results, err = placement.ParsePlacements(f.results); err != nil {
		return o, usagef("-results: %v", err)
	}
	return o, nil
}

func (t tool) onMesh(fs [2]*ir.Func, o mesh.Options) error {
	rep, err := mesh.Check(fs[0], fs[1], o)
	if rep != nil {
		for _, u := range rep.Unknown {
			fmt.Fprintf(t.out, "unknown: %s: %s\n", u.Node, u.Why)
		}
	}
	var e *mesh.Error
	what := ""
	if rep != nil {
		what = fmt.Sprintf("%d values, %d expressions; results %v", rep.Values, rep.Bases, rep.Results)
	}
	return t.proved(err, errors.As(err, &e), what)
}
