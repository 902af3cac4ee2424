package ir

import "testing"

func TestOpTable(t *testing.T) {
	for _, o := range Ops() {
		i := o.Info()
		if i.Name == "" || i.Doc == "" || i.Types.Doc == "" {
			t.Errorf("op %d (%s) has an empty cell", o, i.Name)
		}
		if got, ok := OpByName(i.Name); !ok || got != o {
			t.Errorf("%s is not found by its name", i.Name)
		}
		if o.IsView() != (i.Effects&EffectAlias != 0 && i.Class != ClassWait) || o.IsCollective() != (i.Effects&EffectCommunicates != 0) {
			t.Errorf("%s: class %s and effects %b disagree", i.Name, i.Class, i.Effects)
		}
		for _, a := range i.Attrs {
			if a.Doc == "" {
				t.Errorf("%s: attribute %s has no doc", i.Name, a.Key)
			}
		}
	}
}
