package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-ee968945/concert/internal/tempdir"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// What a parent tells its ranks.
const (
	envRank = "CONCERT_BENCH_RANK"
	envJob  = "CONCERT_BENCH_JOB"
)

// spawn runs one process per rank, each with the same command line, and joins
// their figures: the slowest rank's time counts.
func spawn(o options) (err error) {
	if o.ranks == 0 {
		return errors.New("-procs needs -ranks: the parent must not open the driver")
	}
	job := rendezvous.NewJob("")
	dir, remove, err := tempdir.New("gpubench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	file := func(rank int) string { return fmt.Sprintf("%s/%d", dir, rank) }
	cmds := make([]*exec.Cmd, o.ranks)
	for i := range cmds {
		args := []string{"-mode", o.mode, "-ranks", strconv.Itoa(o.ranks), "-procs", "-out", file(i), "-min", fmt.Sprint(o.least),
			"-max", fmt.Sprint(o.limit), "-only", o.only, fmt.Sprintf("-ptx=%v", o.ptx),
			"-timeout", o.timeout.String(), "-blas", o.blas, "-images", o.images, "-use", o.use, "-staging", fmt.Sprint(o.staging),
			fmt.Sprintf("-fabric=%v", o.fabric), "-calls", strconv.Itoa(o.calls), "-region", fmt.Sprint(o.region)}
		line := append(wrapper(o.wrap, i), os.Args[0])
		cmds[i] = exec.Command(line[0], append(line[1:], args...)...)
		cmds[i].Env = append(os.Environ(), envRank+"="+strconv.Itoa(i), envJob+"="+job.Token())
		cmds[i].SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmds[i].Stderr = os.Stderr
		if i == 0 {
			cmds[i].Stdout = os.Stdout
		}
		if err := cmds[i].Start(); err != nil {
			return err
		}
	}
	var errs []error
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	if len(errs) > 0 || o.out == "" {
		return errors.Join(errs...)
	}
	return join(o, file)
}

// wrapper splits the command that each rank's process runs under; %r is the rank.
func wrapper(command string, rank int) []string {
	return strings.Fields(strings.ReplaceAll(command, "%r", strconv.Itoa(rank)))
}

// join writes, for each figure, the largest time of all ranks.
func join(o options, file func(int) string) error {
	var all []figure
	for rank := 0; rank < o.ranks; rank++ {
		f, err := os.Open(file(rank))
		if err != nil {
			return err
		}
		i := 0
		for s := bufio.NewScanner(f); s.Scan(); i++ {
			var g figure
			if err := json.Unmarshal(s.Bytes(), &g); err != nil {
				f.Close()
				return err
			}
			switch {
			case rank == 0:
				all = append(all, g)
			case i >= len(all) || all[i].Op != g.Op || all[i].Bytes != g.Bytes:
				f.Close()
				return fmt.Errorf("figure %d of rank %d is not that of rank 0", i, rank)
			default:
				all[i].US = max(all[i].US, g.US)
			}
		}
		f.Close()
	}
	out, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, g := range all {
		line, err := json.Marshal(g)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", line)
	}
	return nil
}
