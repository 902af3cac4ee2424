package images

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"

	"github.com/seed-ee968945/concert/kernels"
)

// VersionError is a ptxas other than the one that made the checked-in machine code.
type VersionError struct{ Got, Want string }

// Error names both builds.
func (e *VersionError) Error() string {
	return fmt.Sprintf("this ptxas is %q, the machine code is by %q", e.Got, e.Want)
}

// Reassemble turns the embedded PTX into machine code once more and lists the
// images that do not come out as they are embedded, byte by byte, or whose kernels take other
// registers or spill other bytes than the manifest says. A ptxas of another build gives a
// *VersionError: its code may differ.
func Reassemble(ptxas string) (differ []string, err error) {
	m, err := kernels.ReadManifest()
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(ptxas, "--version").Output()
	if err != nil {
		return nil, err
	}
	if v := lastLine(out); v != m.Ptxas {
		return nil, &VersionError{Got: v, Want: m.Ptxas}
	}
	says, errs := make([]string, len(m.Images)), make([]error, len(m.Images))
	var wg sync.WaitGroup
	for i, im := range m.Images {
		wg.Go(func() { says[i], errs[i] = reassembleImage(ptxas, im, m.Resources) })
	}
	wg.Wait()
	for _, s := range says {
		if s != "" {
			differ = append(differ, s)
		}
	}
	return differ, errors.Join(errs...)
}

// reassembleImage says how an image comes out differently, or nothing.
func reassembleImage(ptxas string, im kernels.Image, want map[string]kernels.Resource) (string, error) {
	ptx, err := im.Load(im.Arch, true)
	if err != nil {
		return "", err
	}
	cubin, log, err := assemble(ptxas, ptx, target(kernels.CubinArch, im.Only))
	if err != nil {
		return "", fmt.Errorf("%s: %w", im.Name, err)
	}
	switch {
	case im.Cubin == "" && kernels.UsesMulticast(im.Name): // has none, but must assemble
		return "", nil
	case im.Cubin == "":
		return fmt.Sprintf("%s: no machine code is checked in", im.Name), nil
	case kernels.Hash(cubin) != im.Cubin:
		return fmt.Sprintf("%s: other machine code, %d bytes", im.Name, len(cubin)), nil
	}
	got := ParseResources(log)
	for _, g := range entryOf.FindAllSubmatch(ptx, -1) {
		if name := string(g[1]); got[name] != want[name] {
			return fmt.Sprintf("%s: %s takes %+v, the manifest has %+v", im.Name, name, got[name], want[name]), nil
		}
	}
	return "", nil
}
