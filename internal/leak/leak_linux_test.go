package leak

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCount: each kind of what can be left behind is counted, and no longer when it is gone.
func TestCount(t *testing.T) {
	before := Now()
	stop := make(chan struct{})
	go func() { <-stop }()
	fd, err := unix.MemfdCreate("leak", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := Now()
	if after.goroutines <= before.goroutines || after.files <= before.files || after.mappings != before.mappings+1 || after.processes != before.processes+1 {
		t.Errorf("before: %v\nafter: %v", before, after)
	}
	close(stop)
	cmd.Process.Kill()
	cmd.Wait()
	if err := unix.Munmap(m); err != nil {
		t.Error(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
	if after = Now(); after.files > before.files || after.mappings != before.mappings || after.processes != before.processes {
		t.Errorf("before: %v\nwhen all is gone: %v", before, after)
	}
}
