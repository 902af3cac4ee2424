package images

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/kernels"
)

var ptxasPath = flag.String("ptxas", "", "the ptxas that made the machine code: the embedded PTX is assembled with it and compared")

// TestReassemble holds the machine code to the PTX it is said to come from. It needs the
// assembler, which is not free software and runs where there are GPUs.
func TestReassemble(t *testing.T) {
	if *ptxasPath == "" {
		t.Skip("needs -ptxas")
	}
	differ, err := Reassemble(*ptxasPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differ {
		t.Error(d)
	}
}

// TestReassembleDiffers uses assemblers that are made up: one of another build, one whose
// code is the same for everything, one that fails.
func TestReassembleDiffers(t *testing.T) {
	m, err := kernels.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	tool := func(version, rest string) string {
		path := filepath.Join(t.TempDir(), "ptxas")
		text := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'ptxas: tool'; echo '" + version + "'; exit; }\n" + rest
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var v *VersionError
	if _, err := Reassemble(tool("build of another day", "")); !errors.As(err, &v) || v.Want != m.Ptxas {
		t.Errorf("another build: %v", err)
	}
	differ, err := Reassemble(tool(m.Ptxas, "while [ \"$1\" != -o ]; do shift; done; echo code > \"$2\"\n"))
	want := 0
	for _, im := range m.Images {
		if im.Cubin != "" || !kernels.UsesMulticast(im.Name) {
			want++
		}
	}
	if err != nil || len(differ) != want || !strings.Contains(strings.Join(differ, "\n"), "other machine code, 5 bytes") {
		t.Errorf("one code for all: %q, %v", differ, err)
	}
	if _, err := Reassemble(tool(m.Ptxas, "echo no such option; exit 2\n")); err == nil || !strings.Contains(err.Error(), "no such option") {
		t.Errorf("a failing assembler: %v", err)
	}
}
