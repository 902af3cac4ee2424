package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// suite is one test binary. It runs in the folder of its package, from where it finds
// its test data.
type suite struct {
	name string
	dir  string
	args func(l libraries) []string
}

var suites = []suite{
	{"cuda", "cuda", func(l libraries) []string { return nil }},
	{"device", "cuda/device", func(l libraries) []string {
		return l.flags("nvrtc", "nvrtc", "cublasLt", "cublaslt", "cudnn", "cudnn", "nccl", "nccl")
	}},
	{"lt", "cuda/lt", func(l libraries) []string { return l.flags("nvrtc", "nvrtc", "cublasLt", "cublaslt") }},
	{"wgmma", "cuda/wgmma", func(l libraries) []string { return l.flags("cublasLt", "cublaslt") }},
	{"cudnn", "cuda/cudnn", func(l libraries) []string { return l.flags("nvrtc", "nvrtc", "cudnn", "dir") }},
	{"nccl", "cuda/nccl", func(l libraries) []string { return l.flags("nccl", "nccl") }},
	{"nvml", "cuda/topo/nvml", func(l libraries) []string { return nil }},
}

// libraries are the paths of the libraries that tests load, by short name.
type libraries map[string]string

// needed are the libraries and the files that they are looked for as.
var needed = []struct{ name, file string }{
	{"nvrtc", "libnvrtc.so."}, {"cublas", "libcublas.so."}, {"cublasLt", "libcublasLt.so."}, {"cudnn", "libcudnn.so.9"}, {"nccl", "libnccl.so.2"},
}

// findLibraries walks the folders in order; of several files the first wins, in the
// order of names, so that every call finds the same.
func findLibraries(roots string) libraries {
	l := libraries{}
	for root := range strings.SplitSeq(roots, ",") {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		// What cannot be read is not there.
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir
			}
			for _, n := range needed {
				if l[n.name] == "" && !d.IsDir() && strings.HasPrefix(d.Name(), n.file) && !strings.Contains(path, "/stubs/") && !strings.Contains(d.Name(), ".alt.") {
					l[n.name] = path
				}
			}
			return nil
		})
	}
	return l
}

// flags names libraries to a binary: pairs of the library and the flag that takes it.
// cuDNN is given by its folder, with what it needs to be loaded before it.
func (l libraries) flags(pairs ...string) []string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		path := l[pairs[i]]
		if path == "" {
			continue
		}
		if pairs[i] == "cudnn" {
			path = filepath.Dir(path)
			var before []string
			for _, n := range []string{"cublasLt", "cublas", "nvrtc"} {
				if l[n] != "" {
					before = append(before, l[n])
				}
			}
			out = append(out, "-preload="+strings.Join(before, ","))
		}
		out = append(out, "-"+pairs[i+1]+"="+path)
	}
	return out
}

// names lists what was found, by the files' real names, which tell the versions.
func (l libraries) names() []string {
	var out []string
	for _, n := range needed {
		if path := l[n.name]; path != "" {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			out = append(out, filepath.Base(path))
		}
	}
	return out
}

// machine says what the tests ran on, in words; of some devices only if they are named.
func machine(devices string) string {
	args := []string{"--query-gpu=name,driver_version", "--format=csv,noheader"}
	if devices != "" {
		args = append(args, "--id="+devices)
	}
	text, err := exec.Command("nvidia-smi", args...).Output()
	if err != nil {
		return "no nvidia-smi: " + err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	var out []string
	for _, line := range slices.Compact(slices.Clone(lines)) {
		count := 0
		for _, l := range lines {
			if l == line {
				count++
			}
		}
		name, driver, _ := strings.Cut(line, ", ")
		out = append(out, fmt.Sprintf("%d x %s, driver %s", count, name, driver))
	}
	return strings.Join(out, "; ")
}

// commit is what the binaries were built from.
func commit(home string) (string, error) {
	text, err := os.ReadFile(filepath.Join(home, "COMMIT"))
	if err != nil {
		return "", fmt.Errorf("%w; make gpu writes it beside the binaries", err)
	}
	return strings.TrimSpace(string(text)), nil
}
