package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// peerTimes are what bench/peer_step.py measured of one function, in milliseconds; 0
// where it failed or was not asked.
type peerTimes struct {
	Traced   float64 `json:"traced_ms,omitempty"`
	Compute  float64 `json:"traced_compute_ms,omitempty"` // as traced, without collectives
	Inductor float64 `json:"inductor_ms,omitempty"`       // the better of its two
}

// readPeer reads the JSON lines that bench/peer_step.py prints, among which other
// lines may stand, by function.
func readPeer(path string) (map[string]peerTimes, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]peerTimes{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Graph, Variant string
			Ms             float64
		}
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &row) != nil || row.Graph == "" || row.Ms <= 0 {
			continue
		}
		t := out[row.Graph]
		switch row.Variant {
		case "traced":
			t.Traced = row.Ms
		case "compute":
			t.Compute = row.Ms
		case "inductor", "overlap":
			if t.Inductor == 0 || row.Ms < t.Inductor {
				t.Inductor = row.Ms
			}
		}
		out[row.Graph] = t
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no times: want what bench/peer_step.py prints", path)
	}
	return out, nil
}

// ratio is how many times as long the peer takes, as text; a dash if it has no time.
func ratio(peer, ours float64) string {
	if peer <= 0 || ours <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", peer/ours)
}

// millis is a time as text; a dash if there is none.
func millis(ms float64) string {
	if ms <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f", ms)
}
