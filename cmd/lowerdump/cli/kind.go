package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// fileKind is what a file holds, as an error says it.
type fileKind string

const (
	irFile          fileKind = "IR text"
	graphFile       fileKind = "a traced graph"
	mlirFile        fileKind = "StableHLO text"
	hloFile         fileKind = "HLO text"
	programFile     fileKind = "a lowered program, which only check reads"
	machineFile     fileKind = "a machine of the cost model, which -machine reads"
	calibrationFile fileKind = "a calibration, which -costs reads"
	topologyFile    fileKind = "the topology of a machine, which topo reads"
	jsonFile        fileKind = "JSON, but not a traced graph"
	binaryFile      fileKind = "not text"
	emptyFile       fileKind = "empty" // for which the parser of IR says what is missing
	otherFile       fileKind = "not IR text (no line begins with world, group, sym or func), StableHLO or HLO"
)

// kindOf tells what a file holds by its contents. What has lines of IR is IR, broken or not.
func kindOf(data []byte) fileKind {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return graphFile
	}
	if bytes.IndexByte(data[:min(len(data), 4096)], 0) >= 0 {
		return binaryFile
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte{'{'}) {
		return graphFile // or other JSON, which kindOfJSON tells where it cannot be read
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("\"builtin.module\"")) {
		return mlirFile
	}
	if bytes.HasPrefix(afterComments(data), []byte("HloModule")) {
		return hloFile
	}
	first := true
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || bytes.HasPrefix(line, []byte("//")) {
			continue
		}
		word, _, _ := bytes.Cut(line, []byte(" "))
		switch string(word) {
		case "world", "group", "sym", "func":
			return irFile
		case "module", "func.func", "builtin.module", "sdy.mesh":
			return mlirFile
		case "program":
			if first {
				return programFile
			}
		}
		first = false
	}
	if first {
		return emptyFile
	}
	return otherFile
}

// afterComments is a text from its first word on.
func afterComments(text []byte) []byte {
	for {
		text = bytes.TrimSpace(text)
		end := []byte("\n")
		if bytes.HasPrefix(text, []byte("/*")) {
			end = []byte("*/")
		} else if !bytes.HasPrefix(text, []byte("//")) {
			return text
		}
		_, text, _ = bytes.Cut(text, end)
	}
}

// kindOfJSON tells JSON objects by their keys. What is broken, the reader of graphs explains.
func kindOfJSON(text []byte) fileKind {
	var keys map[string]json.RawMessage
	if json.Unmarshal(text, &keys) != nil {
		return graphFile
	}
	for _, k := range []struct {
		key  string
		kind fileKind
	}{{"nodes", graphFile}, {"matmul_tflops", machineFile}, {"instructions", calibrationFile}, {"gpus", topologyFile}, {"machines", topologyFile}} {
		if _, ok := keys[k.key]; ok {
			return k.kind
		}
	}
	return jsonFile
}

// anyProgram is what most commands read.
const anyProgram = "IR text, a traced graph, StableHLO or HLO text"

func wrongKind(name string, kind fileKind, want string) error {
	return fmt.Errorf("%s is %s; this command reads %s", name, kind, want)
}
