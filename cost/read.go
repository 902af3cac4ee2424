package cost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxRead bounds a file of a machine, a calibration or a table, in bytes; maxFigure the
// rates and microseconds in it, far beyond every machine's.
const (
	maxRead   = 64 << 20
	maxFigure = 1e12
)

// figureError is a value that no file may have: where it stands, as in intra.gbps or
// collectives.3.us, and what is wrong with it.
type figureError struct{ path, msg string }

// Error names the value.
func (e *figureError) Error() string { return e.path + ": " + e.msg }

// figure checks a rate or a time; some must be positive.
func figure(path string, v float64, positive bool) error {
	switch {
	case positive && !(v > 0):
		return &figureError{path, fmt.Sprintf("must be positive, not %v", v)}
	case !(v >= 0):
		return &figureError{path, fmt.Sprintf("must not be negative, as %v", v)}
	case v > maxFigure:
		return &figureError{path, fmt.Sprintf("%v is more than %v", v, maxFigure)}
	}
	return nil
}

// readJSON decodes one JSON value without unknown fields and checks it. Errors have the
// file and the line.
func readJSON(name string, r io.Reader, into any, check func() error) error {
	data, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxRead {
		return fmt.Errorf("%s: the file is larger than %d bytes", name, maxRead)
	}
	at := func(offset int64) int { return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n")) }
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%s:%d: the file ends too early: %w", name, at(int64(len(data))), err)
		}
		offset := d.InputOffset()
		var wrong *json.UnmarshalTypeError
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &wrong):
			offset = wrong.Offset
		case errors.As(err, &syntax):
			offset = syntax.Offset
		}
		return fmt.Errorf("%s:%d: %w", name, at(offset), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s:%d: more follows the end", name, at(d.InputOffset()))
	}
	err = check()
	var bad *figureError
	if errors.As(err, &bad) {
		return fmt.Errorf("%s:%d: %w", name, at(offsetOf(data, strings.Split(bad.path, "."))), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// offsetOf finds the value at a path of a legal JSON text, or what encloses it where the
// text lacks it.
func offsetOf(data []byte, path []string) int64 {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	end := d.InputOffset()
	for i := 0; err == nil && len(path) > 0 && d.More(); i++ {
		key := strconv.Itoa(i)
		if open == json.Delim('{') {
			var token json.Token
			if token, err = d.Token(); err != nil {
				break
			}
			key = fmt.Sprint(token)
		}
		if key != path[0] {
			var skipped json.RawMessage
			err = d.Decode(&skipped)
			continue
		}
		if open, err = d.Token(); err != nil {
			break
		}
		end, path, i = d.InputOffset(), path[1:], -1
		if _, nested := open.(json.Delim); !nested {
			break
		}
	}
	return end
}
