package lifecycle

import "testing"

// scene is what happens beside the closing.
type scene struct {
	comes, dies bool // the peer
	fails       bool // the caller's call of the driver
	hooks       bool // the scopes have work to ask for: else drivers wait for calls only
	ends        bool // the owner's context
	makes       bool // a group that fails
}

// scenes are all that can end: work that waits for ever, without an end of the context, does
// not, and neither does the world that it is in.
func scenes() []scene {
	all := []scene{{fails: true, makes: true}, {fails: true, makes: true, ends: true}}
	for bits := range 1 << 5 {
		c := scene{comes: bits&3 == 1, dies: bits&3 == 2, fails: bits&4 != 0, ends: bits&8 != 0, makes: bits&16 != 0, hooks: true}
		if bits&3 != 3 && (c.comes || c.dies || c.ends || c.fails) {
			all = append(all, c)
		}
	}
	return all
}

// TestModel visits every interleaving of every scene.
func TestModel(t *testing.T) {
	total := 0
	for _, c := range scenes() {
		if testing.Short() && c.ends && c.makes {
			continue // nine of ten states
		}
		n, err := mech{scene: c}.model().Check(20_000_000)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if total += n; n < 100 {
			t.Errorf("%+v: only %d states: the model does not move", c, n)
		}
	}
	t.Logf("%d scenes, %d states", len(scenes()), total)
}

// TestSeeded leaves out a part of the mechanism each; the checker must object to some scene.
func TestSeeded(t *testing.T) {
	for name, f := range map[string]seeded{
		"a forgotten wait for calls":       {forgottenWait: true},
		"a forgotten wait for work":        {forgottenIdle: true},
		"a double release":                 {doubleRelease: true},
		"two that drive":                   {noToken: true},
		"release before drain":             {beforeDrain: true},
		"a lost wake-up":                   {lostWake: true},
		"a wake-up that owners miss":       {ownWakeOnly: true},
		"a close that waits for itself":    {waitsForItself: true},
		"cancelling that stops at a scope": {notBelow: true},
		"a death that nobody hears of":     {deafWhileDrains: true},
		"holds that release forgets":       {holdsForgotten: true},
		"scopes below that go on":          {stopsAlone: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range scenes() {
				if n, err := (mech{seeded: f, scene: c}).model().Check(20_000_000); err != nil {
					t.Logf("%+v, after %d states: %v", c, n, err)
					return
				}
			}
			t.Error("nothing wrong")
		})
	}
}
