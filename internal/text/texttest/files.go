package texttest

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rogpeppe/go-internal/txtar"
)

// MatchFiles matches the texts in the txtar files below root that are to be sentences:
// pick gives the text of a file of an archive, false for none. It returns how many
// there are, and what is wrong with those that are no sentences.
func (g *Grammar) MatchFiles(root string, pick func(path string, f txtar.File) (string, bool)) (texts int, wrong []error, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".txtar" {
			return err
		}
		a, err := txtar.ParseFile(path)
		if err != nil {
			return err
		}
		for _, f := range a.Files {
			s, ok := pick(path, f)
			if !ok {
				continue
			}
			texts++
			if err := g.Match(s); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %s: %w", path, f.Name, err))
			}
		}
		return nil
	})
	return texts, wrong, err
}
