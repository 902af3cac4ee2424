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
	_ "embed"
	"os/exec"
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
	path, err := exec.LookPath(command)
	if err != nil {
		t.Logf("%s is not checked for CUDA: no %s (Debian package %s)", name, command, command)
		return
	}
	cmd := exec.Command(path, "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_90", "--cuda-feature=+ptx80",
		"-std=c++17", "-fsyntax-only", "-w", "-ferror-limit=5", "-")
	cmd.Stdin = strings.NewReader(header + "#line 1 \"" + name + "\"\n" + source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s does not compile: %v\n%s", name, err, out)
	}
}
