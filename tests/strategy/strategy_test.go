// Package strategy holds that a KV-cache strategy which the host has never heard of is
// planned, tuned, compared and used, with what its plugin's manifest says alone.
package strategy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// interleaved is the strategy of testdata/interleaved.
const interleaved plan.Strategy = "interleaved"

// build builds the plugin outside of this repository's tree.
func build(t *testing.T) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "interleaved")
	must.Succeed(t, os.CopyFS(folder, os.DirFS("testdata/interleaved")))
	abi := must.Value(filepath.Abs("../../abi"))(t)
	include, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	must.Succeed(t, err)
	compile := exec.Command("c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-I"+abi,
		"-I"+filepath.Join(abi, "kit"), "-I"+strings.TrimSpace(string(include)),
		`-DGRAFT_PLUGIN_NAME="interleaved"`, `-DGRAFT_PLUGIN_VERSION="0.1.0"`, `-DGRAFT_PLUGIN_SUMMARY="interleaved"`,
		`-DGRAFT_PLUGIN_DEVICE="cpu"`, `-DGRAFT_PLUGIN_ISA="baseline"`,
		"interleaved.cc", "-Wl,--version-script="+filepath.Join(abi, "cmake/graft.map")+",-z,nodelete", "-o",
		"libinterleaved.so")
	compile.Dir = folder
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return folder
}

// load loads the plugin with graft's own.
func load(t *testing.T, folder string) *loaded.Set {
	t.Helper()
	folders := []string{folder}
	for _, name := range []string{"flash-decode", "packed-linear"} {
		folders = append(folders, filepath.Join("../../build/plugins", name))
	}
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	set, err := loaded.Load(folders, true)
	if err != nil || len(set.Plugins) != len(folders) {
		t.Fatalf("%v: run make plugins", err)
	}
	return set
}

func TestStrategyOfAStranger(t *testing.T) {
	library := must.Value(ort.FindAndOpen(""))(t)
	set := load(t, build(t))
	for _, model := range []string{"gpt2", "bart"} {
		dir := filepath.Join(t.TempDir(), model)
		must.Succeed(t, models.Small(model, dir))
		attention := must.Value(prepare.ParseAttention(string(interleaved), set.Manifests()))(t)
		t.Run(model+" planned", func(t *testing.T) { planned(t, library, set, dir) })
		t.Run(model+" tuned", func(t *testing.T) { tuned(t, set, dir) })
		for _, against := range []string{"none", "keys_values"} { // none is the model as exported
			for _, beams := range []int{1, 4} {
				t.Run(model+" compared with "+against, func(t *testing.T) { compared(t, library, set, dir, against, beams) })
			}
		}
		t.Run(model+" used", func(t *testing.T) {
			g := must.Value(decode.Open(t.Context(), dir,
				decode.Options{Library: library, Plugins: set, CacheBytes: 64 << 20, Attention: attention}))(t)
			defer g.Close()
			for _, l := range g.Engine().Strategies() {
				if l.Strategy != interleaved || l.Plugin != "interleaved" || l.Reason != "" {
					t.Errorf("%+v", l)
				}
			}
		})
	}
}

// A strategy that is not exact is used where it is named, and nowhere else.
func TestStrategyThatIsNotExact(t *testing.T) {
	library := must.Value(ort.FindAndOpen(""))(t)
	folder := build(t)
	manifest := filepath.Join(folder, "plugin.yaml")
	text := must.Value(os.ReadFile(manifest))(t)
	changed := strings.Replace(string(text), "      inputs: keys_values\n",
		"      inputs: keys_values\n      exact: false\n", 1)
	changed = strings.Replace(changed, "bandwidth: 0.4, flops: 0.05, overhead_us: 8",
		"bandwidth: 1, flops: 1, overhead_us: 0", 1)
	must.Succeed(t, os.WriteFile(manifest, []byte(changed), 0o600))
	set := load(t, folder)
	dir := filepath.Join(t.TempDir(), "gpt2")
	must.Succeed(t, models.Small("gpt2", dir))
	for _, named := range []plan.Strategy{"", interleaved} {
		g := must.Value(decode.Prepare(t.Context(), dir,
			decode.Options{Library: library, Plugins: set, CacheBytes: 64 << 20, Attention: prepare.Attention{Self: named}}))(t)
		c := g.Choices[0]
		g.Close()
		refused := c.Options[len(c.Options)-1].Refused
		if named == "" && (c.Candidate.Strategy == interleaved ||
			!strings.HasSuffix(refused, "it is used only where it is named")) ||
			named != "" && (c.Candidate.Strategy != interleaved || refused != "") {
			t.Errorf("named %q: %s, refused: %q", named, c.Candidate, refused)
		}
	}
}

// planned: the planner weighs the strategy beside the others, by its own bytes and cost.
func planned(t *testing.T, library *ort.Library, set *loaded.Set, dir string) {
	g := must.Value(decode.Prepare(t.Context(), dir, decode.Options{Library: library, Plugins: set,
		CacheBytes: 64 << 20}))(t)
	defer g.Close()
	for _, c := range g.Choices {
		var usual, own *plan.Option
		for i := range c.Options {
			switch c.Options[i].Candidate.Strategy {
			case plan.KeysValues:
				usual = &c.Options[i]
			case interleaved:
				own = &c.Options[i]
			}
		}
		l := c.Kind.Layers
		if usual == nil || own == nil || own.Refused != "" {
			t.Fatalf("%s: %+v", l, c.Options)
		}
		if size := l.HeadSize + l.ValueSize; own.Largest.Bytes*size != usual.Largest.Bytes*(size+1) ||
			own.Largest.Seconds <= usual.Largest.Seconds {
			t.Errorf("%s: %+v, keys and values %+v", l, own.Largest, usual.Largest)
		}
	}
}

// tuned: its operator is measured beside the others, and the table says so.
func tuned(t *testing.T, set *loaded.Set, dir string) {
	m := must.Value(prepare.Open(t.Context(), dir))(t)
	defer m.Close()
	layers := must.Value(m.Layers())(t)
	known := plan.Implementations{}.Among(set.Manifests())
	for _, l := range layers {
		r := plan.Range{Keys: [2]int64{16, 16}, Own: [2]int64{0, 4}, Beams: [2]int64{1, 2}, Batch: [2]int64{1, 1}}
		table := must.Value(tune.Measure(t.Context(), l,
			tune.Options{Plugins: set.Plugins, Implementations: known, Range: r, Repeats: 1}))(t)
		folder := t.TempDir()
		must.Value(table.Save(folder))(t)
		tables, notes := tune.Load(folder, set.Plugins, known, 0, l)
		if len(notes) > 0 {
			t.Fatal(notes)
		}
		c := known.Candidate(interleaved, "")
		if s, ok := tables.Seconds(l, c, table.Axes.Shape(0)); !ok || s <= 0 {
			t.Errorf("%s: %s takes %g s, %v", l, c, s, ok)
		}
	}
}

// compared: its tokens are those of the other side.
func compared(t *testing.T, library *ort.Library, set *loaded.Set, dir, against string, beams int) {
	search := must.Value(json.Marshal(map[string]any{"num_beams": beams, "max_new_tokens": 12, "min_new_tokens": 12}))(t)
	r := must.Value(generations.Compare(t.Context(), library, set, dir,
		generations.Options{A: against, B: string(interleaved), Search: search,
			Batch: 3, PromptLength: 10, Seed: 1, Rounds: 1, CacheBytes: 64 << 20}))(t)
	if r.Equal != r.Sequences || r.Sequences == 0 {
		t.Errorf("%d of %d sequences are equal", r.Equal, r.Sequences)
	}
	for _, l := range r.B.Attention {
		must.Equal(t, l.Strategy, interleaved)
	}
}
