package placement

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Annotations are a mesh and how inputs and results lie on it, nil where nothing says that.
type Annotations struct {
	Mesh            Mesh
	Inputs, Results []Placement
}

// Annotated reads the mesh and the placements of inputs and results from the annotations of a
// program of one device (ir.ShardingKey), and from what that of the ranks says of its pieces
// (ir.PiecesKey), which goes first. What neither says anything of is left to the shapes.
func Annotated(device, ranks *ir.Func) (Annotations, error) {
	o, err := annotated(device)
	if err != nil {
		return o, err
	}
	for i, n := range ranks.Inputs() {
		if err := pieces(o.Inputs, i, n.Meta().Str(ir.PiecesKey, "")); err != nil {
			return o, fmt.Errorf("input %d: %w", i, err)
		}
	}
	for i, text := range ranks.Return().Meta().Strs(ir.PiecesKey) {
		if err := pieces(o.Results, i, text); err != nil {
			return o, fmt.Errorf("result %d: %w", i, err)
		}
	}
	return o, nil
}

// pieces reads which piece a rank has.
func pieces(l []Placement, i int, text string) error {
	if text == "" || i >= len(l) {
		return nil
	}
	p, err := ParsePlacement(strings.ReplaceAll(text, "'", `"`))
	if err == nil {
		l[i] = p
	}
	return err
}

func annotated(device *ir.Func) (Annotations, error) {
	var o Annotations
	alike := map[int64]Placement{} // by the number of a set; look-up only
	for i, n := range device.Inputs() {
		p, err := o.annotation(n, 1)
		if err != nil {
			return o, fmt.Errorf("input %d: %w", i, err)
		}
		if k := n.Meta().Int(ir.ShardingGroupKey, 0); p[0] != nil && alike[k] == nil {
			alike[k] = p[0]
		}
		o.Inputs = append(o.Inputs, p[0])
	}
	for i, n := range device.Inputs() {
		if k := n.Meta().Int(ir.ShardingGroupKey, 0); k > 0 && o.Inputs[i] == nil {
			o.Inputs[i] = alike[k]
		}
	}
	var err error
	if o.Results, err = o.annotation(device.Return(), len(device.Return().Args())); err != nil {
		return o, fmt.Errorf("results: %w", err)
	}
	for i, v := range device.Return().Args() {
		if n := v.Base().Def(); o.Results[i] == nil {
			l, err := o.annotation(n, len(n.Results()))
			if err != nil {
				return o, fmt.Errorf("result %d: %w", i, err)
			}
			o.Results[i] = l[v.Base().Index()]
		}
	}
	for _, n := range device.Order() { // for the mesh
		if _, err := o.annotation(n, len(n.Results())); err != nil && o.Mesh.Axes == nil {
			return o, err
		}
	}
	if o.Mesh.Axes == nil {
		return o, fmt.Errorf("no value has a sharding annotation (sharding=[...])")
	}
	return o, nil
}

var (
	meshText   = regexp.MustCompile(`^<mesh<\[([^\]]*)\](?:, *device_ids=\[([^\]]*)\])?>, *`)
	axisText   = regexp.MustCompile(`"([^"]*)"=(\d+)`)
	dimText    = regexp.MustCompile(`\{([^{}]*)\}(?:p\d+)?`)
	usedText   = regexp.MustCompile(`"([^"]*)"(:\(\d+\)\d+)?`)
	numberText = regexp.MustCompile(`\d+`)
)

// annotation is what a node says of some values.
func (o *Annotations) annotation(n *ir.Node, values int) ([]Placement, error) {
	out := make([]Placement, values)
	texts := n.Meta().Strs(ir.ShardingKey)
	if s := n.Meta().Str(ir.ShardingKey, ""); s != "" {
		texts = []string{s}
	}
	if len(texts) == 0 {
		return out, nil
	}
	if len(texts) != values {
		return nil, fmt.Errorf("%%%s states %d shardings of %d values", n.Name(), len(texts), values)
	}
	for i, text := range texts {
		text = strings.ReplaceAll(text, "'", `"`)
		m := meshText.FindStringSubmatch(text)
		if m == nil {
			if text != "" {
				return nil, fmt.Errorf("%q: want a mesh and the axes of each dimension", text)
			}
			continue
		}
		var mesh Mesh
		for _, a := range axisText.FindAllStringSubmatch(m[1], -1) {
			size, err := strconv.ParseInt(a[2], 10, 64)
			if err != nil {
				return nil, err
			}
			mesh.Axes = append(mesh.Axes, Axis{a[1], size})
		}
		for _, r := range numberText.FindAllString(m[2], -1) {
			rank, err := strconv.Atoi(r)
			if err != nil {
				return nil, err
			}
			mesh.Ranks = append(mesh.Ranks, rank)
		}
		if o.Mesh.Axes == nil {
			o.Mesh = mesh
		} else if !slices.Equal(o.Mesh.Axes, mesh.Axes) || !slices.Equal(o.Mesh.Ranks, mesh.Ranks) {
			return nil, fmt.Errorf("values lie on several meshes")
		}
		rest := text[len(m[0]):]
		if strings.Contains(rest, "unreduced") {
			return nil, fmt.Errorf("%q: parts of a sum are no pieces", text)
		}
		body, _, _ := strings.Cut(rest, "]")
		p := Placement{}
		for _, d := range dimText.FindAllStringSubmatch(body, -1) {
			axes := []string{}
			for _, a := range usedText.FindAllStringSubmatch(d[1], -1) {
				axes = append(axes, a[1]+a[2])
			}
			p = append(p, axes)
		}
		out[i] = p
	}
	return out, nil
}
