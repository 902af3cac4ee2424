package tempdir

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const envOwner = "CONCERT_TEMPDIR_OWNER"

// The test binary is also a process that makes a folder and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv(envOwner) == "" {
		os.Exit(m.Run())
	}
	dir, _, err := New("concert-test-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends it
}

func TestRemove(t *testing.T) {
	dir, remove, err := New("concert-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// The folder of a process goes away however the process ends.
func TestKilled(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			t.Logf("%v does not end this process, nor its children: whoever started it ignores that", sig)
			continue
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envOwner+"=1")
		stdin, err := cmd.StdinPipe() // open while this process lives
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, guard, err := os.Pipe() // its other end closes when the guard has ended, too
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = guard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		guard.Close()
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		dir := strings.TrimSpace(line)
		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if said, err := io.ReadAll(stderr); err != nil || len(said) > 0 {
			t.Errorf("%v: %q, %v", sig, said, err)
		}
		_ = cmd.Wait() // killed
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the folder is still there: %v", sig, err)
		}
	}
}
