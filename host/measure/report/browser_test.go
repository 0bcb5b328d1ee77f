package report

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/internal/must"
)

// seen is what a browser makes of a page.
type seen struct {
	Title   string
	Wide    []string // what is wider than the page, and not in a part of its own that scrolls
	Overlap []string // words of charts that lie on each other or outside of their chart
	Least   float64  // the height in pixels of the smallest words of a chart
	Colours [3]string
	Values  []struct{ Text, Value, At, Scale string }
	Data    string // the address of the raw data
	Scripts int
}

// look is what the pages are held up to: a document around them, whose script looks at what the browser made of them.
const look = `<!doctype html><body style="margin:0"><iframe id="page" src="PAGE" width="WIDTH" height="900" style="border:0"></iframe><script>
addEventListener("load", () => {
  const frame = document.getElementById("page"), d = frame.contentDocument, w = frame.contentWindow;
  const seen = {Title: d.title, Wide: [], Overlap: [], Least: 1e9, Values: [], Data: "", Scripts: d.scripts.length};
  for (const e of d.querySelectorAll("main *")) {
    if (!e.closest(".scroll") && !e.closest("svg") && e.getBoundingClientRect().right > frame.clientWidth + 0.5) seen.Wide.push(e.tagName + ": " + e.textContent.slice(0, 40));
  }
  if (d.documentElement.scrollWidth > frame.clientWidth) seen.Wide.push("the page: " + d.documentElement.scrollWidth);
  for (const svg of d.querySelectorAll("svg")) {
    const edge = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => {
      seen.Least = Math.min(seen.Least, Math.min(p.height, p.width > 0 ? 1e9 : 0));
      if (p.left < edge.left - 1 || p.right > edge.right + 1 || p.top < edge.top - 1 || p.bottom > edge.bottom + 1) seen.Overlap.push(a + " is outside");
      texts.slice(i + 1).forEach(([b, q]) => {
        if (Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 2) seen.Overlap.push(a + " on " + b);
      });
    });
  }
  const style = (e, what) => e ? w.getComputedStyle(e)[what] : "";
  seen.Colours = [style(d.body, "backgroundColor"), style(d.body, "color"), style(d.querySelector("svg text[style*=ink]"), "fill")];
  for (const e of d.querySelectorAll("data")) seen.Values.push({Text: e.textContent, Value: e.value, At: e.dataset.at, Scale: e.dataset.scale || "1"});
  seen.Data = (d.querySelector("#data a") || {}).href || "";
  document.body.innerHTML = "<pre id=seen></pre>";
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>`

// chromium runs a browser on a file, and returns the document that it made of it, and what the console of pages said.
func chromium(t *testing.T, path string, dark bool) (dom string, console []string) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: make setup installs it", err)
	}
	scheme := map[bool]string{true: "0", false: "1"}[dark]
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--enable-logging=stderr", "--allow-file-access-from-files",
		"--blink-settings=preferredColorScheme="+scheme, "--user-data-dir="+t.TempDir(), "--window-size=1400,900",
		"--dump-dom", (&url.URL{Scheme: "file", Path: path}).String())
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, talk.String())
	}
	for line := range strings.Lines(talk.String()) {
		if strings.Contains(line, ":CONSOLE") {
			console = append(console, strings.TrimSpace(line))
		}
	}
	return out.String(), console
}

var seenPart = regexp.MustCompile(`(?s)<pre id="seen">(.*?)</pre>`)

// looked shows a page to a browser.
func looked(t *testing.T, page []byte, width int, dark bool) *seen {
	t.Helper()
	folder := t.TempDir()
	around := filepath.Join(folder, "look.html")
	document := strings.NewReplacer("PAGE", "page.html", "WIDTH", strconv.Itoa(width)).Replace(look)
	for path, content := range map[string][]byte{filepath.Join(folder, "page.html"): page, around: []byte(document)} {
		must.Succeed(t, os.WriteFile(path, content, 0o644))
	}
	dom, console := chromium(t, around, dark)
	must.Empty(t, console)
	m := seenPart.FindStringSubmatch(dom)
	if m == nil {
		t.Fatalf("the browser made %.2000s", dom)
	}
	s := &seen{}
	must.Succeed(t, json.Unmarshal([]byte(html.UnescapeString(m[1])), s))
	return s
}

// TestBrowser opens reports in Chromium: nothing is said on its console, no script is there, each number is that of
// the JSON, words of charts lie apart and inside, and a phone shows all of it.
func TestBrowser(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    shape
		width int
		dark  bool
	}{
		{"one side and size, a phone in the dark", small, 360, true},
		{"several sides and sizes", usual, 1200, false},
		{"several sides and sizes, a phone", usual, 390, false},
		{"answers that differ and names that are code", wrong, 1200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := example(c.of)
			page := must.Value(Model(s, Options{Command: "graft ab '" + hostile + "'", Version: "v1"}))(t)
			v := looked(t, page, c.width, c.dark)
			var data any = s
			if r := s.Result(); r != nil {
				data = r
			}
			must.Value(comparison.Read("the raw data", numbers(t, v, data)))(t)
			drawnWell(t, v, c.dark)
			if !strings.HasPrefix(v.Title, "model.onnx: ") {
				t.Errorf("title %q", v.Title)
			}
			for i := range s.Cells {
				for j := range s.Sides {
					at := fmt.Sprintf("/cells/%d/sides/%d/speedup/median", i, j)
					if s.Result() != nil {
						at = "/speedup/median"
					}
					if !has(v, at) {
						t.Errorf("the page has no %s", at)
					}
				}
			}
		})
	}
}

func has(v *seen, at string) bool {
	for _, n := range v.Values {
		if n.At == at {
			return true
		}
	}
	return false
}

// drawnWell checks what a page looks like.
func drawnWell(t *testing.T, v *seen, dark bool) {
	t.Helper()
	must.Empty(t, v.Wide)
	must.Empty(t, v.Overlap)
	if v.Least < 8 {
		t.Errorf("the smallest words of a chart are %.1f pixels high", v.Least)
	}
	want := [3]string{"rgb(255, 255, 255)", "rgb(31, 35, 40)", "rgb(31, 35, 40)"}
	if dark {
		want = [3]string{"rgb(13, 17, 23)", "rgb(240, 246, 252)", "rgb(240, 246, 252)"}
	}
	if v.Colours != want || v.Scripts != 0 {
		t.Errorf("colours %v, want %v; %d scripts", v.Colours, want, v.Scripts)
	}
}

// numbers compares those of a page with those of the JSON, and the raw data with all of it.
func numbers(t *testing.T, v *seen, data any) (raw []byte) {
	t.Helper()
	text, err := json.Marshal(data)
	must.Succeed(t, err)
	var tree any
	must.Succeed(t, json.Unmarshal(text, &tree))
	if len(v.Values) < 20 {
		t.Errorf("the page has %d numbers", len(v.Values))
	}
	for _, n := range v.Values {
		want, err := resolve(tree, n.At)
		if err != nil {
			t.Errorf("%s: %v", n.At, err)
			continue
		}
		value, errV := strconv.ParseFloat(n.Value, 64)
		shown, errS := strconv.ParseFloat(n.Text, 64)
		scale, errC := strconv.ParseFloat(n.Scale, 64)
		if errV != nil || errS != nil || errC != nil || value != want ||
			math.Abs(shown-value*scale) > 0.5000001*unit(n.Text) {
			t.Errorf("%s is %v, the page has %s, which it shows as %s", n.At, want, n.Value, n.Text)
		}
	}
	kind, packed, ok := strings.Cut(v.Data, ";base64,")
	raw, err = base64.StdEncoding.DecodeString(packed)
	if !ok || kind != "data:application/json" || err != nil {
		t.Fatalf("raw data %.60s, %v", v.Data, err)
	}
	var again any
	if err := json.Unmarshal(raw, &again); err != nil || !reflect.DeepEqual(again, tree) {
		t.Errorf("the raw data are not the result: %v, %.300s", err, raw)
	}
	return raw
}

// unit is what the last digit of a number counts: 0.01 of 1.23, 0.01e-5 of 1.23e-05.
func unit(text string) float64 {
	mantissa, exponent, _ := strings.Cut(text, "e")
	e, _ := strconv.Atoi(exponent)
	_, digits, _ := strings.Cut(mantissa, ".")
	return math.Pow(10, float64(e-len(digits)))
}

// resolve is the number at a JSON pointer.
func resolve(tree any, at string) (float64, error) {
	for _, key := range strings.Split(at, "/")[1:] {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch v := tree.(type) {
		case map[string]any:
			next, ok := v[key]
			if !ok {
				return 0, fmt.Errorf("no %q", key)
			}
			tree = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return 0, fmt.Errorf("no element %q", key)
			}
			tree = v[i]
		}
	}
	x, ok := tree.(float64)
	if !ok {
		return 0, fmt.Errorf("%v is no number", tree)
	}
	return x, nil
}

// TestConsole: what a page says on its console is seen, or TestBrowser could not fail.
func TestConsole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.html")
	must.Succeed(t, os.WriteFile(path, []byte("<!doctype html><script>console.error('a fault')</script>"), 0o644))
	if _, console := chromium(t, path, false); len(console) != 1 || !strings.Contains(console[0], "a fault") {
		t.Errorf("console %q", console)
	}
}
