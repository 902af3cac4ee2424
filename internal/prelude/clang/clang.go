// Package clang checks in tests that generated CUDA source compiles, on machines without a GPU and
// without CUDA. The fake driver executes what a kernel computes, not its source.
//
// NVRTC is another front end (EDG's) and differs. Its functions are built in, which
// nvrtc.h declares, and it has no host headers; its C++17 has no float16 and no long
// double; it warns differently about pragmas and unused functions, takes #pragma unroll with any
// constant expression, and checks the constraints and text of inline PTX only when ptxas
// does. What clang rejects here NVRTC rejects as well, except for what nvrtc.h lacks: declare it
// there.
package clang

import (
	"bytes"
	_ "embed"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

//go:embed nvrtc.h
var header string

// command is the compiler that the project's images are made with.
const command = "clang-19"

// Check fails the test if a translation unit does not compile for sm_90. Without the
// compiler it says so in the log.
func Check(t testing.TB, name, source string) {
	t.Helper()
	compile(t, name, source, "-fsyntax-only")
}

// SharedLimit is the static shared memory that a kernel may have: what has more does not load.
const SharedLimit = 48 << 10

// Shared is how many bytes of static shared memory the kernels of a translation unit have together, 0
// without the compiler.
func Shared(t testing.TB, name, source string) (n int) {
	t.Helper()
	size := map[string]int{"8": 1, "16": 2, "32": 4, "64": 8}
	for _, v := range shared.FindAllStringSubmatch(compile(t, name, source, "-O1", "-S", "-o", "-"), -1) {
		length := 1
		if v[2] != "" {
			length, _ = strconv.Atoi(v[2])
		}
		n += size[v[1]] * length
	}
	return n
}

// shared is a variable of PTX.
var shared = regexp.MustCompile(`\.shared \.align \d+ \.[bsuf](\d+) [\w$]+(?:\[(\d+)\])?;`)

// compile runs the compiler, and gives what it prints.
func compile(t testing.TB, name, source string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(command)
	if err != nil {
		t.Logf("%s is not checked for CUDA: no %s (Debian package %s)", name, command, command)
		return ""
	}
	cmd := exec.Command(path, append([]string{"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_90", "--cuda-feature=+ptx80",
		"-std=c++17", "-w", "-ferror-limit=5", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(header + "#line 1 \"" + name + "\"\n" + source)
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s does not compile: %v\n%s", name, err, says.Bytes())
	}
	return string(out)
}
