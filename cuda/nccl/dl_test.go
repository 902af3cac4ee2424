//go:build linux && cgo && (amd64 || arm64)

package nccl

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	envLibrary = "CONCERT_TEST_NCCL_LIBRARY" // a made-up NCCL, and driver
	envWant    = "CONCERT_TEST_NCCL_WANT"    // what it lacks
)

// header lists the functions that are looked up. It is embedded: the GPU table runs this
// binary where no source is.
//
//go:embed shim.h
var header string

// TestRegistrationCalls loads made-up libraries, each in a process of its own: they say what
// they lack for registrations, and one that lacks nothing is called as NCCL's interface has it.
func TestRegistrationCalls(t *testing.T) {
	if path := os.Getenv(envLibrary); path != "" {
		registrationCalls(t, path, os.Getenv(envWant))
		return
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	names := regexp.MustCompile(`X\(\w+, "(\w+)"`).FindAllStringSubmatch(header, -1)
	if len(names) < 19 {
		t.Fatalf("only %d functions in shim.h", len(names))
	}
	// It registers only if the library sees the setting, as NCCL's own reading of it does.
	const calls = "char *getenv(const char *); int ncclCommRegister(long comm, long at, long n, long *h) { if (*getenv(\"NCCL_GRAPH_REGISTER\") != '0') return 3; *h = comm * 100 + at * 10 + n; return 0; }\n" +
		"int ncclCommDeregister(long comm, long h) { return comm == 7 && h == 789 ? 0 : 5; }\n"
	for _, tc := range []struct{ name, version, calls, setting, want string }{
		{"old", "21805", "", "0", "NCCL 2.18.5 has no ncclCommRegister"},
		{"between", "22304", calls, "0", "NCCL 2.23.4 does not use registered memory on the network"},
		{"other", "22803", calls, "1", "the environment lacks NCCL_GRAPH_REGISTER=0"},
		{"whole", "22803", calls, "0", ""},
		{"unset", "22803", calls, "", ""},
	} {
		lib := filepath.Join(t.TempDir(), tc.name+".so")
		src := tc.calls
		for _, m := range names {
			body := "(void) { return 0; }"
			if m[1] == "ncclGetVersion" {
				body = "(int *v) { *v = " + tc.version + "; return 0; }"
			}
			src += "int " + m[1] + body + "\n"
		}
		if err := os.WriteFile(lib+".c", []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(cc, "-w", "-shared", "-fPIC", "-o", lib, lib+".c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestRegistrationCalls$")
		cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, ownRegistrations+"=") })
		cmd.Env = append(cmd.Env, envLibrary+"="+lib, envWant+"="+tc.want)
		if tc.setting != "" {
			cmd.Env = append(cmd.Env, ownRegistrations+"="+tc.setting)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", tc.name, err, out)
		}
	}
}

func registrationCalls(t *testing.T, path, want string) {
	l, err := open(path, path)
	if err != nil {
		t.Fatal(err)
	}
	err = l.Registers()
	if want != "" {
		var le *LackError
		if !errors.As(err, &le) || !errors.Is(err, ErrNoRegistration) || !strings.Contains(err.Error(), want) {
			t.Errorf("registers: %v, want %q", err, want)
		}
		if !strings.Contains(want, "has no") {
			return
		}
		if _, err := l.Register(0, 7, 8, 9); !errors.Is(err, &Error{Call: "ncclCommRegister", Code: InvalidUsage}) {
			t.Errorf("register without the call: %v", err)
		}
		if err := l.Deregister(0, 7, 789); !errors.Is(err, &Error{Call: "ncclCommDeregister", Code: InvalidUsage}) {
			t.Errorf("deregister without the call: %v", err)
		}
		return
	}
	if err != nil {
		t.Error(err)
	}
	if r, err := l.Register(0, 7, 8, 9); r != 789 || err != nil {
		t.Errorf("registration %d, %v", r, err)
	}
	if err := l.Deregister(0, 7, 789); err != nil {
		t.Error(err)
	}
	if err := l.Deregister(0, 7, 788); !errors.Is(err, &Error{Call: "ncclCommDeregister", Code: InvalidUsage}) {
		t.Errorf("a wrong registration: %v", err)
	}
}
