package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"

	"golang.org/x/term"
)

// Colours, as parameters of an escape sequence.
const (
	red     = "1;31"
	magenta = "1;35"
)

// colour wraps text on standard output in an escape sequence where that is a terminal.
func (t tool) colour(code, text string) string { return t.coloured(t.out, code, text) }

// coloured wraps text in an escape sequence if w is a terminal that has colours and NO_COLOR
// is not set.
func (t tool) coloured(w io.Writer, code, text string) string {
	f, ok := w.(*os.File)
	if !ok || t.env("NO_COLOR") != "" || t.env("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// marks are what stands out in an error: its rule, and what points at its place.
var marks = regexp.MustCompile(`(?m)\berror\[[\w-]+\]|^ +\| +\^~*`)

// highlight colours the marks of an error for standard error.
func (t tool) highlight(message string) string {
	return marks.ReplaceAllStringFunc(message, func(s string) string { return t.coloured(t.err, red, s) })
}

// warn writes a warning.
func (t tool) warn(about any) {
	fmt.Fprintf(t.busy.Over(t.err), "%s: %v\n", t.coloured(t.err, magenta, "warning"), about)
}
