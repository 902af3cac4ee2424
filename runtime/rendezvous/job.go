package rendezvous

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Secret is shared by the processes of a job and known to no other. No way of
// printing it shows it. The zero Secret is none.
type Secret struct{ text *string } // a pointer, so that not even %#v of a struct around it shows the text

// minSecret is the least length of a secret in bytes. The job's key follows from
// the secret, so a guessable secret is one that can be guessed offline.
const minSecret = 16

const hidden = "[secret]"

// NewSecret makes a secret of 256 random bits.
func NewSecret() Secret {
	var b [32]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return Secret{new(hex.EncodeToString(b[:]))}
}

// SecretOf takes text of 16 bytes or more without blanks for a secret. Its error
// does not show the text.
func SecretOf(text string) (Secret, error) {
	if len(text) < minSecret || len(text) > 1024 || strings.ContainsAny(text, " \t\r\n\x00") {
		return Secret{}, fmt.Errorf("a job's secret has %d to 1024 bytes without blanks, not %d", minSecret, len(text))
	}
	return Secret{&text}, nil
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Reveal returns the secret, for handing it to a process of the job through its
// environment or a file that others cannot read. Never put it on a command line.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String hides the secret, as do GoString, LogValue and MarshalText.
func (s Secret) String() string { return hidden }

// GoString hides the secret.
func (s Secret) GoString() string { return hidden }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// ReadSecret reads a secret from a file that must be this user's alone.
func ReadSecret(file string) (Secret, error) {
	f, err := os.Open(file)
	if err != nil {
		return Secret{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Secret{}, err
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
		return Secret{}, fmt.Errorf("%s has mode %v; a file with a secret must be a regular one that only its owner can read: chmod 600", file, st.Mode())
	}
	b := make([]byte, 2048)
	n, err := f.Read(b)
	if err != nil {
		return Secret{}, fmt.Errorf("%s: %w", file, err)
	}
	s, err := SecretOf(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return Secret{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// UserSecret is the secret of all jobs of this user on this machine whose launcher
// made none: the file concert/secret in dir, made by the first process. The
// directory is made for the user alone if need be.
func UserSecret(dir string) (Secret, error) {
	dir = filepath.Join(dir, "concert")
	file := filepath.Join(dir, "secret")
	s, err := ReadSecret(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Secret{}, err
	}
	f, err := os.CreateTemp(dir, "new-*") // has mode 0600
	if err != nil {
		return Secret{}, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(NewSecret().Reveal() + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return Secret{}, err
	}
	// A link appears whole and to one of those who race for it only.
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return Secret{}, err
	}
	return ReadSecret(file)
}

// Job is one job's identity, its secret, and where its ranks find each other.
type Job struct {
	// ID tells jobs apart. It is no secret: it appears in logs and errors, and is
	// sent before the other side is known.
	ID     string
	Secret Secret
	// Addr is "tcp:HOST:PORT", "unix:@NAME" in Linux's abstract space, or
	// "unix:PATH". Rank 0 listens there and the others connect.
	Addr string
	// Listen is where rank 0 listens instead, if Addr is not one of its own
	// addresses (translated addresses, containers), such as "tcp::29501".
	Listen string

	local *local                  // of NewLocal: ranks are goroutines, and there is no address
	wrap  func(net.Conn) net.Conn // of tests: makes connections fail

	silence time.Duration // of connections, see Place; 0: the default
	asked   bool          // rank 0 listens: other ranks ask it for their parents
	base    int           // of the tree; 0: the default
}

// NewJob makes a job with a fresh identity and secret at addr; if that is empty, at
// a socket of this machine that is named after the identity.
func NewJob(addr string) *Job {
	j := &Job{ID: newID(), Secret: NewSecret(), Addr: addr}
	if addr == "" {
		j.Addr = "unix:@concert-" + j.ID
	}
	return j
}

// NewLocal makes a job whose ranks are goroutines of this process: they need no
// address and no secret. Ranks that join under one name form a world; the next ones
// form the next.
func NewLocal() *Job { return &Job{ID: newID(), local: &local{forming: map[string]*coordinator{}}} }

// Local reports whether the job's ranks are goroutines of this process.
func (j *Job) Local() bool { return j.local != nil }

// local finds the world that is forming under a name.
type local struct {
	mu      sync.Mutex
	forming map[string]*coordinator
}

// tree is that of a world of processes.
func (j *Job) tree(world int) tree { return tree{cmp.Or(j.base, treeBase), world} }

// newID returns 128 random bits.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Token is the job in one line for ParseJob. It shows the secret: hand it on
// through the environment or a file, not on a command line.
func (j *Job) Token() string {
	return strings.TrimSpace(strings.Join([]string{j.ID, j.Secret.Reveal(), j.Addr, j.Listen}, " "))
}

// ParseJob is the reverse of Token. Its error does not show the secret.
func ParseJob(token string) (*Job, error) {
	f := strings.Split(token, " ")
	if len(f) != 3 && len(f) != 4 {
		return nil, fmt.Errorf("a job's token has 3 or 4 words, not %d", len(f))
	}
	s, err := SecretOf(f[1])
	if err != nil {
		return nil, err
	}
	j := &Job{ID: f[0], Secret: s, Addr: f[2]}
	if len(f) == 4 {
		j.Listen = f[3]
	}
	return j, j.Check()
}

// maxID bounds an identity, which becomes a server name.
const maxID = 200

// Check says what is wrong with the job; its error does not show the secret.
func (j *Job) Check() error {
	if j == nil {
		return errors.New("there is no job")
	}
	if j.Local() {
		return nil
	}
	if j.ID == "" || len(j.ID) > maxID || strings.ContainsFunc(j.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("a job's identity has 1 to %d letters without blanks, not %.40q", maxID, j.ID)
	}
	if j.Secret.IsZero() {
		return errors.New("the job has no secret")
	}
	for _, a := range []string{j.Addr, j.Listen} {
		if network, addr, ok := strings.Cut(a, ":"); a != "" && (!ok || addr == "" || network != "tcp" && network != "unix") {
			return fmt.Errorf("address %q of a job: want tcp:HOST:PORT or unix:NAME", a)
		}
	}
	if j.Addr == "" {
		return errors.New("the job has no address")
	}
	return nil
}

// Loopback reports whether the address cannot be reached from other machines.
func (j *Job) Loopback() bool {
	network, addr, _ := strings.Cut(j.Addr, ":")
	if network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// config makes both sides prove by TLS that they know the secret: the job's key pair
// follows from it, and either side accepts that key only. The client has checked
// the server before it sends anything but its greeting; the server reads nothing
// before it has checked the client; and what follows is encrypted and bound to the
// handshake, so that it cannot be read, changed, or moved to another connection.
func (j *Job) config() (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, []byte(j.Secret.Reveal()), []byte(j.ID), "concert job key", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	pub := key.Public().(ed25519.PublicKey)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: j.ID}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, pub, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		ServerName: "concert.invalid", InsecureSkipVerify: true, // there is no authority and no name: VerifyConnection knows the one key
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 && pub.Equal(s.PeerCertificates[0].PublicKey) {
				return nil
			}
			other := "unknown"
			if len(s.PeerCertificates) > 0 {
				other = s.PeerCertificates[0].Subject.CommonName
			}
			return &unauthenticatedError{other: fmt.Sprintf("%.40q", other), own: j.ID}
		},
	}, nil
}

// unauthenticatedError says that a peer does not know the job's secret.
type unauthenticatedError struct{ other, own string }

// Error names the jobs.
func (e *unauthenticatedError) Error() string {
	return fmt.Sprintf("it belongs to job %s, this process to %.40q: they share an address, or their secrets differ", e.other, e.own)
}

// mismatch is the error of a rank that finds another's listener at an address.
func (e *unauthenticatedError) mismatch(addr string, rank int) error {
	err := &MismatchError{Op: "rendezvous", What: "jobs at " + addr, Rank: rank, RankValue: e.own, PeerValue: e.other}
	if fmt.Sprintf("%.40q", e.own) == e.other {
		err.What, err.RankValue, err.PeerValue = fmt.Sprintf("secrets of job %s at %s", e.own, addr), "one", "another"
	}
	return err
}

// Is reports a match with ErrUnauthenticated.
func (e *unauthenticatedError) Is(target error) bool { return target == ErrUnauthenticated }
