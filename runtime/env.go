package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/seed-ee968945/concert/runtime/store"
)

// Env is one rank's place in a job and where its store is.
type Env struct {
	Rank, World           int
	LocalRank, LocalWorld int    // among the ranks of this host; LocalWorld 0 if unknown
	Addr                  string // host:port of the store; empty for a world of one
	Source                string // where the place came from, for logs: "options", "torchrun", ...
	listenFD              int    // of rank 0: an inherited listening socket, 0 if none
}

// Names of environment variables that belong to concert itself.
const (
	EnvPort     = "CONCERT_PORT"      // port of the store; default MASTER_PORT + 1, because MASTER_PORT itself may be in use by torchrun's agent
	EnvListenFD = "CONCERT_LISTEN_FD" // of rank 0: number of an inherited socket that listens at the store's address
)

// envSets lists the known launchers in the order in which they are tried.
var envSets = []struct {
	source                         string
	rank, world, local, localWorld string
}{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}

// EnvFrom finds this rank's place with getenv (os.Getenv, as a rule). The first
// launcher whose rank and world size are both set wins: torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI, Slurm; the latter
// two need MASTER_ADDR and a port as well. Without any of them the world is this
// rank alone. A set that is complete but malformed is an error, not a reason to
// try the next.
func EnvFrom(getenv func(string) string) (Env, error) {
	for _, set := range envSets {
		rank, world := getenv(set.rank), getenv(set.world)
		if rank == "" || world == "" {
			continue
		}
		e := Env{Source: set.source}
		var err error
		number := func(name, text string, into *int) {
			n, perr := strconv.Atoi(text)
			if perr != nil || n < 0 {
				err = errors.Join(err, fmt.Errorf("%s=%q is not a number", name, text))
			}
			*into = n
		}
		number(set.rank, rank, &e.Rank)
		number(set.world, world, &e.World)
		e.LocalRank = e.Rank
		if s := getenv(set.local); s != "" {
			number(set.local, s, &e.LocalRank)
		}
		if s := getenv(set.localWorld); s != "" {
			number(set.localWorld, s, &e.LocalWorld)
		}
		if s := getenv(EnvListenFD); s != "" {
			number(EnvListenFD, s, &e.listenFD)
		}
		if err == nil && (e.World < 1 || e.Rank >= e.World) {
			err = fmt.Errorf("rank %d of a world of %d", e.Rank, e.World)
		}
		if err == nil && e.World > 1 {
			e.Addr, err = storeAddr(getenv)
		}
		if err != nil {
			return Env{}, fmt.Errorf("environment of %s: %w", set.source, err)
		}
		return e, nil
	}
	return Env{World: 1, LocalWorld: 1, Source: "none: a world of one"}, nil
}

func storeAddr(getenv func(string) string) (string, error) {
	host, port := getenv("MASTER_ADDR"), getenv(EnvPort)
	if host == "" {
		return "", errors.New("MASTER_ADDR is not set")
	}
	name, add := EnvPort, 0
	if port == "" {
		name, add, port = "MASTER_PORT", 1, getenv("MASTER_PORT")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n+add > 65535 {
		return "", fmt.Errorf("%s=%q is not a usable port", name, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(n+add)), nil
}

// OpenStore opens the job's store: rank 0 hosts it, the others dial until ctx
// ends. The caller closes it.
func OpenStore(ctx context.Context, e Env) (store.Store, error) {
	switch {
	case e.Addr == "":
		if e.World > 1 {
			return nil, &RendezvousError{Rank: e.Rank, Reason: "no address of a store was given"}
		}
		return store.NewMem(), nil
	case e.Rank > 0:
		c, err := store.Dial(ctx, e.Addr)
		if err != nil {
			var pe *store.ProtocolError
			if errors.As(err, &pe) {
				return nil, &RendezvousError{Rank: e.Rank, Reason: "cannot use the store", Err: err}
			}
			return nil, err
		}
		return c, nil
	case e.listenFD > 0:
		f := os.NewFile(uintptr(e.listenFD), "store")
		if f == nil {
			return nil, &RendezvousError{Reason: fmt.Sprintf("%s=%d is no descriptor", EnvListenFD, e.listenFD)}
		}
		ln, err := net.FileListener(f)
		f.Close() // FileListener has a duplicate
		if err != nil {
			return nil, &RendezvousError{Reason: fmt.Sprintf("%s=%d", EnvListenFD, e.listenFD), Err: err}
		}
		return store.Serve(ln, ""), nil
	}
	s, err := store.Listen(ctx, e.Addr, "")
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		// The address others dial is not one of this host's own (translated
		// addresses, containers): listen on all.
		_, port, _ := net.SplitHostPort(e.Addr)
		s, err = store.Listen(ctx, ":"+port, "")
	}
	if err != nil {
		return nil, &RendezvousError{Reason: "cannot host the store", Err: err}
	}
	return s, nil
}
