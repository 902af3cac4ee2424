package host_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// System calls fail here for real: a filter of the kernel hands those of a process, and of the
// ranks that it starts, to this test, which lets one of them fail and all others pass.

// sysCalls are those that fail, and how they fail.
var sysCalls = []struct {
	name  string
	nr    uint32
	errno unix.Errno
	any   bits // of which one has to be set
	none  bits // that must not be set
	early bool // ranks make it before the others know them: a process that fails so is its launcher's matter
}{
	{name: "memfd_create", nr: unix.SYS_MEMFD_CREATE, errno: unix.EMFILE},
	{name: "ftruncate", nr: unix.SYS_FTRUNCATE, errno: unix.ENOMEM},
	{name: "mmap", nr: unix.SYS_MMAP, errno: unix.ENOMEM, any: bits{3, unix.MAP_SHARED}},
	{name: "mmap of no memory", nr: unix.SYS_MMAP, errno: unix.ENOMEM, any: bits{3, unix.MAP_NORESERVE}, none: bits{2, unix.PROT_READ | unix.PROT_WRITE}, early: true},
	{name: "fcntl", nr: unix.SYS_FCNTL, errno: unix.EMFILE, early: true},
	{name: "fstat", nr: unix.SYS_FSTAT, errno: unix.EIO, early: true},
	{name: "openat", nr: unix.SYS_OPENAT, errno: unix.EMFILE, early: true},
	{name: "socket", nr: unix.SYS_SOCKET, errno: unix.EMFILE, early: true},
	{name: "bind", nr: unix.SYS_BIND, errno: unix.EADDRINUSE, early: true},
	{name: "listen", nr: unix.SYS_LISTEN, errno: unix.EADDRINUSE, early: true},
	{name: "accept4", nr: unix.SYS_ACCEPT4, errno: unix.EMFILE, early: true},
	{name: "connect", nr: unix.SYS_CONNECT, errno: unix.ECONNREFUSED, early: true},
	{name: "getsockopt", nr: unix.SYS_GETSOCKOPT, errno: unix.ENOBUFS, early: true},
	{name: "sendmsg", nr: unix.SYS_SENDMSG, errno: unix.EPIPE},
	{name: "recvmsg", nr: unix.SYS_RECVMSG, errno: unix.ECONNRESET},
	{name: "clone", nr: unix.SYS_CLONE, errno: unix.EAGAIN, none: bits{0, unix.CLONE_THREAD}},
	{name: "execve", nr: unix.SYS_EXECVE, errno: unix.ENOENT},
}

// bits of an argument.
type bits struct{ arg, of uint32 }

// sumText is a program that a world gets while it lives.
const sumText = `program @sum world 2
group @g = [[0, 1]]
stream @compute
stream @comm on @g
events 2
arena 1024
buffer %x at 0 size 16
buffer %y at 512 size 16
input x {data} = %x: f32[4]
output y = %y: f32[4]
body
@compute record 0
@comm wait 0
@comm all_reduce on @g (%x: f32[4]) -> (%y: f32[4]) {reduce="sum"} from %s
@comm record 1
@compute wait 1
`

const envCalls = "HOST_CALLS" // "all": the process whose calls fail; "rank": a rank that it started

// filter makes the kernel hand the calls of this process from now on to who has the
// descriptor that it returns.
func filter() (int, error) {
	const notify, allow, data = 0x7fc00000, 0x7fff0000, 16 // data is where the arguments begin
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: k} }
	jump := func(how uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | how, Jt: yes, Jf: no, K: k}
	}
	var f []unix.SockFilter
	for _, c := range sysCalls {
		one := []unix.SockFilter{ret(notify)}
		test := func(yes, no uint8, b bits) { // in front of the others; what fails continues after them
			if b.of != 0 {
				behind := uint8(len(one))
				one = append([]unix.SockFilter{load(data + 8*b.arg), jump(unix.BPF_JSET, b.of, yes*behind, no*behind)}, one...)
			}
		}
		test(1, 0, c.none)
		test(0, 1, c.any)
		f = append(append(f, load(0), jump(unix.BPF_JEQ, c.nr, 0, uint8(len(one)))), one...)
	}
	f = append(f, ret(allow))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	const allThreads, listener, otherError, onlyKilled = 1, 8, 16, 32
	p := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_MODE_FILTER-1, allThreads|listener|otherError|onlyKilled, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// hands lets calls pass, and one fail.
type hands struct {
	fd int

	mu   sync.Mutex
	seen map[string]int // calls since arm
	name string         // the kind of which call number nth fails; empty for none
	nth  int
	hit  bool
}

func (h *hands) arm(name string, nth int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen, h.name, h.nth, h.hit = map[string]int{}, name, nth, false
}

func (h *hands) disarm() (seen map[string]int, hit bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.name = ""
	return maps.Clone(h.seen), h.hit
}

// verdict is the error of a call of that number and arguments, 0 for none.
func (h *hands) verdict(nr uint32, args [6]uint32) unix.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range sysCalls {
		if c.nr == nr && (c.any.of == 0 || args[c.any.arg]&c.any.of != 0) && args[c.none.arg]&c.none.of == 0 {
			if h.seen[c.name]++; c.name == h.name && h.seen[c.name] == h.nth {
				h.hit = true
				return c.errno
			}
		}
	}
	return 0
}

// serve answers until nobody makes calls any more.
func (h *hands) serve() {
	const receive, send, goOn = 0xc0502100, 0xc0182101, 1
	for {
		var in [80]byte
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(h.fd), receive, uintptr(unsafe.Pointer(&in))); errno == unix.EINTR || errno == unix.ENOENT {
			continue // it was killed
		} else if errno != 0 {
			return
		}
		var out [24]byte
		copy(out[:8], in[:8])
		var args [6]uint32
		for i := range args {
			args[i] = binary.LittleEndian.Uint32(in[32+8*i:])
		}
		if e := h.verdict(binary.LittleEndian.Uint32(in[16:]), args); e != 0 {
			binary.LittleEndian.PutUint32(out[16:], uint32(-int32(e)))
		} else {
			binary.LittleEndian.PutUint32(out[20:], goOn)
		}
		unix.Syscall(unix.SYS_IOCTL, uintptr(h.fd), send, uintptr(unsafe.Pointer(&out)))
	}
}

// lives is what a rank does while a call fails.
func lives(ctx context.Context, cfg rt.Config) error {
	cfg.Timeout, cfg.UserBytes = time.Hour, 512
	p, err := program.Parse("sum", sumText)
	if err != nil {
		return err
	}
	m, err := rt.ModuleOf(p)
	if err != nil {
		return err
	}
	r, err := rt.Join(ctx, host.Opener(host.Options{}), cfg)
	if err != nil {
		return fmt.Errorf("joining: %w", err)
	}
	defer r.Close()
	x := rt.C(0, rt.F32, 4)
	if err := run(ctx, r, sumOf(x)); err != nil {
		return err
	}
	if err := r.Add(ctx, m, nil); err != nil { // the world lives on without it
		return errors.Join(err, run(ctx, r, sumOf(x)))
	}
	if _, err := rt.Run(ctx, r, p, []rt.Value{{DType: rt.F32, Shape: rt.Dims{4}, Data: make([]byte, 16)}}, rt.Options{}); err != nil {
		return err
	}
	return errors.Join(r.Drop(ctx, m), run(ctx, r, sumOf(x)))
}

// livesTwice is lives on two ranks: goroutines that share memory as processes do, or processes.
func livesTwice(processes bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if processes {
		return launch.Run(ctx, launch.Spec{World: 2, Args: []string{"-test.run=^$"}, Env: []string{envCalls + "=rank"}, Grace: 2 * time.Minute})
	}
	job := rendezvous.NewJob("")
	joining, fail := context.WithCancelCause(ctx)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = lives(joining, rt.Config{Job: job, Env: &rt.Env{Rank: i, World: 2}})
			if errs[i] != nil && strings.HasPrefix(errs[i].Error(), "joining") { // as the launcher of processes does
				fail(errs[i])
			}
		})
	}
	wg.Wait()
	fail(nil)
	return errors.Join(errs...)
}

// obeys is the process whose calls fail: it does what it is told, and says what came of it.
func obeys() error {
	fd, err := filter()
	if err != nil {
		fmt.Println("listener", -1)
		return err
	}
	fmt.Println("listener", fd)
	var before leak.Held
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch what := in.Text(); what {
		case "count":
			before = leak.Now()
			fmt.Println("counted")
		case "goroutines", "processes":
			fmt.Printf("ran %q\n", fmt.Sprint(livesTwice(what == "processes")))
		case "look":
			fmt.Printf("left %q\n", before.More())
		}
	}
	return nil
}

// victim is such a process, and what makes its calls fail.
type victim struct {
	t       *testing.T
	h       *hands
	stdin   io.WriteCloser
	answers *bufio.Reader
}

func newVictim(t *testing.T) *victim {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), launch.EnvChild+"=1", envCalls+"=all")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{t: t, h: &hands{seen: map[string]int{}}, stdin: stdin, answers: bufio.NewReader(stdout)}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	var theirs int
	if v.ask("", "listener %d", &theirs); theirs < 0 {
		t.Skip("this machine lets no process filter its system calls")
	}
	pid, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pid)
	if v.h.fd, err = unix.PidfdGetfd(pid, theirs, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(v.h.fd) })
	go v.h.serve()
	return v
}

// ask says what to do, and reads the answer.
func (v *victim) ask(what, form string, into ...any) {
	if what != "" {
		io.WriteString(v.stdin, what+"\n")
	}
	line, err := v.answers.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, form, into...)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: got %q: %v", what, line, err))
	}
}

// live lets a world live while a call fails, and gives the error, and what is left.
func (v *victim) live(world, name string, nth int) (seen map[string]int, hit bool, err, left string) {
	v.ask("count", "counted")
	v.h.arm(name, nth)
	v.ask(world, "ran %q", &err)
	seen, hit = v.h.disarm()
	v.ask("look", "left %q", &left)
	return seen, hit, err, left
}

var allCalls = flag.Bool("calls", false, "TestSystemCalls: every call, not every seventh")

// TestSystemCalls lets system calls by which ranks join, share memory and start processes
// fail once, wherever a world makes them. Ranks end with an error, or well, nobody waits
// for a deadline, and nothing is left.
func TestSystemCalls(t *testing.T) {
	victims := make(chan *victim, 8) // they wait most of the time
	for range cap(victims) {
		victims <- newVictim(t)
	}
	var failed, runs atomic.Int64
	var wg sync.WaitGroup
	for _, world := range []string{"goroutines", "processes"} {
		v := <-victims
		seen, _, err, left := v.live(world, "", 0)
		victims <- v
		if err != "<nil>" || left != "" {
			t.Fatalf("%s: %s, left %s", world, err, left)
		}
		t.Logf("%s make %v", world, seen)
		for k, c := range sysCalls {
			if world == "processes" && c.early {
				continue
			}
			for n := 1; n <= seen[c.name]; n++ {
				if !*allCalls && (n+k)%7 != 1 && n != seen[c.name] {
					continue
				}
				v := <-victims
				wg.Go(func() {
					defer func() { victims <- v }()
					_, hit, err, left := v.live(world, c.name, n)
					if runs.Add(1); err != "<nil>" {
						failed.Add(1)
					}
					// Who fails before rank 0 knows it is the launcher's matter, which ends the others.
					waited := strings.Contains(err, "timed out") || strings.Contains(err, "killed") && !strings.Contains(err, "joining")
					if left != "" || waited || strings.Contains(err, "panic") {
						t.Errorf("%s: %s %d of %d failed (%v): %s; left: %s", world, c.name, n, seen[c.name], hit, err, left)
					}
				})
			}
		}
	}
	wg.Wait()
	t.Logf("%d calls failed, one a run; %d runs ended with an error", runs.Load(), failed.Load())
}
