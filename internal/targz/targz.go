// Package targz reads tar.gz archives of test data.
package targz

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"
)

// Files are the texts of the files of a .tar.gz that end in suffix, by base name.
func Files(packed, suffix string) (map[string]string, error) {
	f, err := os.Open(packed)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if name := path.Base(h.Name); h.Typeflag == tar.TypeReg && strings.HasSuffix(name, suffix) {
			text, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			out[name] = string(text)
		}
	}
}
