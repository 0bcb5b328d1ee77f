package readme

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// twoCores is the machine that the table is made for, whatever runs the test.
var twoCores = plan.Machine{Bandwidth: 44e9, CacheBandwidth: 180e9, CacheBytes: 3e6, FLOPS: 240e9, Dispatch: 1.5e-6}

// TestRecognitionTable compares the table of docs/recognition.md with what is found in each fixture.
func TestRecognitionTable(t *testing.T) {
	_, section, _ := strings.Cut(text(t, "docs/recognition.md"), "## The graphs under models/graphs")
	section, _, _ = strings.Cut(section, "\n## ")
	flash := must.Value(manifest.Read(filepath.Join(root(t), "plugins", "flash-decode")))(t)
	rows := 0
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		rows++
		want := row(t, f, flash)
		if !strings.Contains(section, want+"\n") {
			t.Errorf("docs/recognition.md has no row\n%s", want)
		}
	}
	must.Equal(t, strings.Count(section, "\n| `"), rows)
}

// TestEveryFactIsDocumented compares the facts of docs/recognition.md with those that blocks state.
func TestEveryFactIsDocumented(t *testing.T) {
	document := text(t, "docs/recognition.md")
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			if !strings.Contains(document, "`"+name+"`") && !strings.Contains(document, "`"+name+"[]`") {
				t.Errorf("docs/recognition.md does not have the fact %s of %s", name, of)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[blocks.Attention]())
	for name := range (&blocks.Block{Attention: &blocks.Attention{}}).Facts() {
		if !strings.Contains(document, "`"+name+"`") {
			t.Errorf("docs/recognition.md does not have %s, which plugin.yaml may constrain", name)
		}
	}
}

// row is the line of a fixture: name, forms, recognised, replaced, not recognised.
func row(t *testing.T, f models.Fixture, attention *manifest.Manifest) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, f.Write(path, 1))
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, []*manifest.Manifest{attention}, plan.Options{Machine: twoCores}))(t)
	var forms []string
	for _, b := range a.Report.Blocks {
		form := b.Attention.Form
		if form != "nodes" {
			form = "`" + form + "`"
		}
		forms = append(forms, form)
	}
	slices.Sort(forms)
	return fmt.Sprintf("| `%s` | %s | %d | %d | %d |", f, strings.Join(slices.Compact(forms), ", "),
		len(a.Report.Blocks), a.Plan.Replaced(), len(a.Report.Unrecognised))
}
