package gomlx

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/program"
)

// With cache=FOLDER compiled programs outlive the process: a file each, named by the digest of
// what it was made of and by what, which is this executable. A file's first line is the digest
// of the rest; one that was cut off or changed is compiled anew. The folder may be emptied at
// any time, and several processes may share it.

// keep finds the program of a text in the folder, or makes it and puts it there.
func (b *Backend) keep(text string, compile func() (*program.Program, error)) (*program.Program, error) {
	if b.cache == "" {
		return compile()
	}
	maker, err := b.maker()
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%x\n%s\n%s\n%v\n%s", maker, b.kind, b.passes, b.narrow, text))
	file := filepath.Join(b.cache, hex.EncodeToString(key[:])+".program")
	if p := readProgram(file); p != nil {
		return p, nil
	}
	p, err := compile()
	if err != nil {
		return nil, err
	}
	return p, errors.WithStack(writeProgram(file, p))
}

// executableDigest is the digest of this process's executable.
func executableDigest() ([]byte, error) {
	name, err := os.Executable()
	if err != nil {
		return nil, errors.WithStack(err)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), errors.WithStack(err)
}

// stored is a program as a file has it: its text names the source of kernels by digest only.
type stored struct {
	Program string
	Prelude string
	Sources []string // of kernels
}

// readProgram is nil where there is no such file, or not all of it.
func readProgram(file string) *program.Program {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	sum, text, _ := bytes.Cut(data, []byte("\n"))
	var s stored
	if string(sum) != digest(text) || json.Unmarshal(text, &s) != nil {
		return nil
	}
	p, err := program.Parse(file, s.Program)
	if err != nil || len(p.Kernels) != len(s.Sources) {
		return nil
	}
	if s.Prelude != "" {
		p.Unit.Prelude, p.Unit.Digest = s.Prelude, ""
	}
	for i, source := range s.Sources {
		if source != "" {
			p.Kernels[i].Source, p.Kernels[i].Digest = source, ""
		}
	}
	return p
}

// writeProgram writes a file that is there as a whole or not at all.
func writeProgram(file string, p *program.Program) error {
	s := stored{Program: string(p.AppendText(nil)), Prelude: p.Unit.Prelude}
	for _, k := range p.Kernels {
		s.Sources = append(s.Sources, k.Source)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "new-*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\n%s", digest(text), text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
