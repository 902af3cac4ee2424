package images

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/kernels"
)

// Adopt takes machine code that ptxas made on another machine into folder dir of package
// kernels. For every image it takes, from holds NAME.ptx (what ptxas read), NAME.cubin and
// NAME.log (what ptxas -v said); ptxas.txt is what ptxas --version said. Machine code is
// taken only if NAME.ptx is the checked-in PTX, byte by byte, and by one version of
// ptxas for all images. Images without NAME.cubin in from stay as they are. names lists what
// was taken.
func Adopt(dir, from string) (names []string, err error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	version, err := os.ReadFile(filepath.Join(from, "ptxas.txt"))
	if err != nil {
		return nil, err
	}
	if m.Resources == nil {
		m.Resources = map[string]kernels.Resource{}
	}
	var stay []string
	for i := range m.Images {
		im := &m.Images[i]
		err := adopt(dir, from, im, m.Resources)
		switch {
		case err == nil:
			names = append(names, im.Name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s: %w", im.Name, err)
		case im.Cubin != "":
			stay = append(stay, im.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds machine code of no image", from)
	}
	if v := lastLine(version); len(stay) > 0 && v != m.Ptxas {
		return nil, fmt.Errorf("this machine code is by ptxas %q, that of %s by %q: assemble all with one", v, strings.Join(stay, ", "), m.Ptxas)
	} else {
		m.Ptxas = v
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name+".cubin"))
		if err != nil {
			return nil, err
		}
		if err := writeGzip(filepath.Join(dir, "images", cubinFile(&kernels.Image{Name: name})), b); err != nil {
			return nil, err
		}
	}
	return names, writeManifest(dir, m)
}

// adopt sets an image's hash of machine code and what its kernels take.
func adopt(dir, from string, im *kernels.Image, res map[string]kernels.Resource) error {
	cubin, err := os.ReadFile(filepath.Join(from, im.Name+".cubin"))
	if err != nil {
		return err
	}
	var ptx, log []byte
	if ptx, err = os.ReadFile(filepath.Join(from, im.Name+".ptx")); err == nil {
		log, err = os.ReadFile(filepath.Join(from, im.Name+".log"))
	}
	if err != nil {
		return fmt.Errorf("machine code is incomplete: %v", err)
	}
	ours, err := readGzip(filepath.Join(dir, "images", ptxFile(im)))
	if err != nil {
		return fmt.Errorf("no PTX is checked in: %v", err)
	}
	if !bytes.Equal(ptx, ours) || kernels.Hash(ptx) != im.PTX {
		return errors.New("the machine code is of another PTX than the checked-in one")
	}
	said := ParseResources(string(log))
	for _, g := range entryOf.FindAllSubmatch(ptx, -1) {
		r, ok := said[string(g[1])]
		if !ok {
			return fmt.Errorf("the log says nothing of %s", g[1])
		}
		res[string(g[1])] = r
	}
	im.Cubin = kernels.Hash(cubin)
	return nil
}

// lastLine gives the last line of a tool's version, which names the build.
func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

var (
	entryLine = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores`)
	usedLine  = regexp.MustCompile(`Used (\d+) registers`)
)

// ParseResources reads ptxas -v output.
func ParseResources(log string) map[string]kernels.Resource {
	out := map[string]kernels.Resource{}
	name := ""
	for _, line := range strings.Split(log, "\n") {
		if g := entryLine.FindStringSubmatch(line); g != nil {
			name = g[1]
		} else if g := spillLine.FindStringSubmatch(line); g != nil && name != "" {
			r := out[name]
			r.StackBytes, _ = strconv.Atoi(g[1])
			r.SpillBytes, _ = strconv.Atoi(g[2])
			out[name] = r
		} else if g := usedLine.FindStringSubmatch(line); g != nil && name != "" {
			r := out[name]
			r.Registers, _ = strconv.Atoi(g[1])
			out[name] = r
		}
	}
	return out
}
