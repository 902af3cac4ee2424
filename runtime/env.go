package runtime

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Env is one rank's place in a job, and how it finds and knows the others.
type Env struct {
	Rank, World           int
	LocalRank, LocalWorld int    // among the ranks of this host; LocalWorld 0 if unknown
	Addr                  string // where rank 0 listens, as in rendezvous.Job; empty for a world of one
	Listen                string // where rank 0 listens if not at Addr
	ID                    string // of the job
	// Host names the host of this rank: ranks with equal names share memory. If it is empty
	// the machine tells, and two network namespaces of one are two hosts.
	Host string
	// Secret is the job's; if there is none, SecretFile holds it, and without that
	// the user's own secret serves jobs whose ranks are all on this machine.
	Secret     rendezvous.Secret
	SecretFile string
	Source     string // where the place came from, for logs: "options", "torchrun", ...
}

// Names of environment variables that belong to concert itself.
const (
	EnvJob        = "CONCERT_JOB"         // all about the job: rendezvous.Job.Token, which a launcher makes
	EnvSecret     = "CONCERT_SECRET"      // the job's secret: 16 bytes or more, the same for all ranks
	EnvSecretFile = "CONCERT_SECRET_FILE" // a file that holds the secret and that only its owner can read
	EnvPort       = "CONCERT_PORT"        // port of rank 0; default MASTER_PORT + 1, because MASTER_PORT itself may be in use by torchrun's agent
	EnvHost       = "CONCERT_HOSTID"      // the name of this rank's host, see Env.Host; without it the machine tells
	EnvListen     = "CONCERT_LISTEN"      // HOST:PORT where rank 0 listens if MASTER_ADDR is no address of its machine, such as :29501
)

// envSets lists the known launchers in the order in which they are tried.
var envSets = []struct {
	source                         string
	rank, world, local, localWorld string
	id                             []string // what names the job
}{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", []string{"TORCHELASTIC_RUN_ID"}},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", []string{"PMIX_NAMESPACE"}},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}},
}

// EnvFrom finds this rank's place with getenv (os.Getenv, as a rule). The first
// launcher whose rank and world size are both set wins: torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI, Slurm; the latter
// two need MASTER_ADDR and a port as well, unless CONCERT_JOB has all about the job. Without any of them the world is this
// rank alone. A set that is complete but malformed is an error, not a reason to
// try the next, and so is RANK without WORLD_SIZE; of an error there is no more than the rank.
func EnvFrom(getenv func(string) string) (Env, error) {
	for _, set := range envSets {
		rank, world := getenv(set.rank), getenv(set.world)
		if rank == "" || world == "" {
			continue
		}
		e := Env{Source: set.source, Host: getenv(EnvHost)}
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
		if err == nil && (e.World < 1 || e.Rank >= e.World) {
			err = fmt.Errorf("rank %d of a world of %d", e.Rank, e.World)
		}
		if err == nil && e.World > 1 {
			err = e.fromEnv(getenv, set.id)
		}
		if err != nil {
			return Env{Rank: e.Rank}, fmt.Errorf("environment of %s: %w", set.source, err)
		}
		return e, nil
	}
	if rank := getenv("RANK"); rank != "" { // each rank would run alone
		return Env{}, fmt.Errorf("environment: RANK=%s is set, but not WORLD_SIZE", rank)
	}
	return Env{World: 1, LocalWorld: 1, Source: "none: a world of one"}, nil
}

// fromEnv finds the job.
func (e *Env) fromEnv(getenv func(string) string, ids []string) error {
	if token := getenv(EnvJob); token != "" {
		j, err := rendezvous.ParseJob(token)
		if err != nil {
			return fmt.Errorf("%s: %w", EnvJob, err)
		}
		e.ID, e.Secret, e.Addr, e.Listen = j.ID, j.Secret, j.Addr, j.Listen
		return nil
	}
	host, port := getenv("MASTER_ADDR"), getenv(EnvPort)
	if host == "" {
		return errors.New("MASTER_ADDR is not set")
	}
	name, add := EnvPort, 0
	if port == "" {
		name, add, port = "MASTER_PORT", 1, getenv("MASTER_PORT")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n+add > 65535 {
		return fmt.Errorf("%s=%q is not a usable port", name, port)
	}
	at := net.JoinHostPort(host, strconv.Itoa(n+add))
	e.Addr, e.ID = "tcp:"+at, at
	for _, id := range ids {
		if s := getenv(id); s != "" {
			e.ID += "/" + strings.Join(strings.Fields(s), "_")
		}
	}
	if s := getenv(EnvListen); s != "" {
		e.Listen = "tcp:" + s
	}
	if s := getenv(EnvSecret); s != "" {
		if e.Secret, err = rendezvous.SecretOf(s); err != nil {
			return fmt.Errorf("%s: %w", EnvSecret, err)
		}
	}
	e.SecretFile = getenv(EnvSecretFile)
	return nil
}

// Job is the job of the environment. Without a secret, and without a file that holds
// one, a job that cannot be reached from other machines takes the user's own; any other
// is an error.
func (e Env) Job() (*rendezvous.Job, error) {
	j := &rendezvous.Job{ID: e.ID, Secret: e.Secret, Addr: e.Addr, Listen: e.Listen}
	if j.Addr == "" {
		return nil, errors.New("no address of rank 0 was given")
	}
	if j.ID == "" {
		j.ID = j.Addr
	}
	var err error
	switch {
	case !j.Secret.IsZero():
	case e.SecretFile != "":
		j.Secret, err = rendezvous.ReadSecret(e.SecretFile)
	case j.Loopback() && j.Listen == "":
		var dir string
		if dir, err = os.UserConfigDir(); err == nil {
			j.Secret, err = rendezvous.UserSecret(dir)
		}
		if err != nil {
			err = fmt.Errorf("%w (or set %s)", err, EnvSecretFile)
		}
	default:
		err = fmt.Errorf("ranks that find each other at %s need a secret: set %s or %s to the same on all of them", j.Addr, EnvSecret, EnvSecretFile)
	}
	return j, err
}
