// Package tempdir makes temporary folders that are removed with the process that
// made them, even if it is killed.
package tempdir

import (
	"errors"
	"os"
	"os/exec"
)

// New makes a folder like os.MkdirTemp in the default place. remove removes it with all
// that it holds. If this process ends without calling it, by SIGKILL too, a guard does: a
// shell in a session of its own that waits for the end of a pipe of which this process
// holds the other end. Where no shell can be started there is no guard.
func New(pattern string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	guarded, alive, err := os.Pipe()
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer guarded.Close()
	guard := exec.Command("/bin/sh", "-c", `trap "" HUP INT TERM; read -r _; rm -rf -- "$0"`, dir)
	guard.Dir = "/"
	guard.Stdin, guard.Stderr = guarded, os.Stderr
	guard.SysProcAttr = ownSession()
	started := guard.Start() == nil
	return dir, func() error {
		err := os.RemoveAll(dir)
		alive.Close()
		if started {
			_ = guard.Wait() // it has nothing left to remove
		}
		return err
	}, nil
}
