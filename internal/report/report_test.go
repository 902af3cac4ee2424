package report

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// write makes the report of a traced graph under the order-only pipeline.
func write(t testing.TB, name string) []byte {
	t.Helper()
	file, err := fx.ReadFile(filepath.Join("..", "..", "testdata", "graphs", name+".graph.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	r, err := New("<"+name+">", res.Func, cost.TracedH200())
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse("order-only")
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.TracedH200(), Hooks: []passes.Hook{{Name: "report", After: func(step *passes.StepReport, m *ir.Module) error {
		r.Version("after "+step.Pass, m.AppendText(nil))
		return nil
	}}}}
	rep, err := g.Run(res.Module, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(res.Func, rep); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The page is alone, escapes its title, is the same every time, and stays small.
func TestPage(t *testing.T) {
	page := write(t, "llama70b_fsdp8_tp8.bw")
	if len(page) > 2<<20 {
		t.Errorf("18,489 nodes make a page of %d bytes, want at most 2 MiB", len(page))
	}
	text := string(page)
	for _, bad := range []string{"http://", "https://", "src=", "@import", "{{", "<llama"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if !bytes.Equal(page, write(t, "llama70b_fsdp8_tp8.bw")) {
		t.Error("two runs write different pages")
	}
}

// A browser draws the page: the script says that it is done, and the screenshot
// has the colours of computing, gathers and scatters.
func TestBrowserDraws(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no Chromium to draw the page with")
	}
	dir := t.TempDir()
	html, shot := filepath.Join(dir, "report.html"), filepath.Join(dir, "shot.png")
	if err := os.WriteFile(html, write(t, "llama8b_fsdp8.bw"), 0o644); err != nil {
		t.Fatal(err)
	}
	chromium := func(args ...string) []byte {
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--window-size=1280,1400", "--virtual-time-budget=10000", "--user-data-dir=" + filepath.Join(dir, "profile")}, args...)
		out, err := exec.Command(browser, append(args, "file://"+html)...).Output()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		return out
	}
	dom := string(chromium("--dump-dom"))
	if strings.Contains(dom, "data-error") || !strings.Contains(dom, `data-ready="`) {
		t.Fatal("the page's script did not finish")
	}
	if n := strings.Count(dom, "<tr>"); n < 100 {
		t.Errorf("the tables have %d rows", n)
	}
	chromium("--screenshot=" + shot)
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		r, g, b uint32
	}{{"computing", 0x2f, 0x6f, 0xdb}, {"all_gather", 0x2a, 0x9d, 0x6f}, {"reduce_scatter", 0xe0, 0x8a, 0x2e}} {
		if n := count(img, c.r, c.g, c.b); n < 300 {
			t.Errorf("%d pixels have the colour of %s", n, c.name)
		}
	}
}

func count(img image.Image, r, g, b uint32) int {
	n := 0
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			pr, pg, pb, _ := img.At(x, y).RGBA()
			if pr>>8 == r && pg>>8 == g && pb>>8 == b {
				n++
			}
		}
	}
	return n
}

func BenchmarkReport18k(b *testing.B) {
	for b.Loop() {
		write(b, "llama70b_fsdp8_tp8.bw")
	}
}
