package sched

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-ee968945/concert/sim/simtest"
)

var exportDir = flag.String("export", "", "directory to write scheduled graphs to, for judgement by another program")

func TestExport(t *testing.T) {
	if *exportDir == "" {
		t.Skip("no -export directory")
	}
	cost := simtest.TracedH200Cost()
	for _, name := range arena {
		g, err := simtest.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := g.Model()
		if err != nil {
			t.Fatal(err)
		}
		for suffix, c := range map[string]Cost{"": nil, ".buckets": cost} {
			r, err := Schedule(m, Options{Cost: c})
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(exported(g, r.Order, r.Buckets))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(*exportDir, name+suffix+".graph.json"), data, 0o644); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s%s makespan %.4f exposed %.4f peak %.4f", name, suffix, r.Timeline.Makespan, r.Timeline.Exposed, gib(r.Timeline.Peak))
		}
	}
}
