// Package conformance holds the plugins that make builds, and some that break its rules, to the C ABI.
package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// checks are those that a case goes through beside its answers.
const checks = 4

// build compiles the sources of a plugin folder beside a copy of its manifest, and opens it.
func build(t *testing.T, source, library string) *plugin.Plugin {
	t.Helper()
	header := must.Value(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output())(t)
	text := must.Value(os.ReadFile(filepath.Join(source, manifest.FileName)))(t)
	m := must.Value(manifest.Parse(filepath.Join(source, manifest.FileName), text))(t)
	folder := filepath.Join(t.TempDir(), m.Name)
	must.Succeed(t, os.Mkdir(folder, 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, manifest.FileName), text, 0o644))
	sources := must.Value(filepath.Glob(filepath.Join(source, "*.cc")))(t)
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "c++"
	}
	args := append([]string{"-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-I..", "-I../kit", "-isystem",
		strings.TrimSpace(string(header)), "-DGRAFT_PLUGIN_NAME=\"" + m.Name + "\"",
		"-DGRAFT_PLUGIN_VERSION=\"" + m.Version + "\"",
		"-DGRAFT_PLUGIN_SUMMARY=\"\"", "-DGRAFT_PLUGIN_DEVICE=\"cpu\"", "-DGRAFT_PLUGIN_ISA=\"baseline\"",
		"-o", filepath.Join(folder, library)}, sources...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	p := must.Value(plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true}))(t)
	return p
}

// problems runs the harness and gives what it found, by case and check.
func problems(t *testing.T, p *plugin.Plugin) (found map[string]string, passed int) {
	t.Helper()
	found = map[string]string{}
	for i := range p.Manifest.Cases {
		list := must.Value(conformance.Rules(t.Context(), p, &p.Manifest.Cases[i]))(t)
		for _, r := range list {
			if r.Problem == "" {
				passed++
			} else {
				found[r.Case+": "+r.Check] = r.Problem
			}
		}
	}
	return found, passed
}

func TestCheckPasses(t *testing.T) {
	p := build(t, "../tests/kit-check", "libkit_check.so")
	found, passed := problems(t, p)
	for what, problem := range found {
		t.Errorf("%s: %s", what, problem)
	}
	must.Equal(t, passed, len(p.Manifest.Cases)*(1+checks))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conformance.Rules(ctx, p, &p.Manifest.Cases[0]); err == nil {
		t.Error("found no error after the context ended, need context.Canceled")
	}
}

// TestBundledPlugins holds the plugins that make builds to the rules.
func TestBundledPlugins(t *testing.T) {
	manifests, err := filepath.Glob("../../build/*/*/" + manifest.FileName)
	if err != nil || len(manifests) == 0 {
		t.Fatalf("found no plugin under build, need those that make builds: %v", err)
	}
	for _, path := range manifests {
		folder := filepath.Dir(path)
		if kind := filepath.Base(filepath.Dir(folder)); kind != "plugins" && kind != "examples" {
			continue
		}
		t.Run(filepath.Base(folder), func(t *testing.T) {
			p := must.Value(plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true}))(t)
			found, _ := problems(t, p)
			for what, problem := range found {
				t.Errorf("%s: %s", what, problem)
			}
		})
	}
}

func TestCheckFinds(t *testing.T) {
	found, _ := problems(t, build(t, "testdata/rule-breaker", "librule_breaker.so"))
	want := map[string]string{
		"CountsOnAlignment: alignment": "output 0 differs: element 0 is 2, and 1 in a plain run",
		"IgnoresStrides: strides":      "input 0 with strides [2 4]: output 0 differs: element 1 is",
		"SharesScratch: concurrency":   "several runs at once on one kernel: output 0 differs: element 0 is -1e+09",
		"ReckonsWithUnknown: unknown sizes": "infer_shapes with inputs [[-2]] gave output 0 float32[7], and float32[6] " +
			"with all sizes known",
		"WritesBeyond: answers": "it wrote outside output y",
		"LeavesOut: answers":    "output y[5] is NaN, expected is 6",
		"GivesNoShape: answers": "the node has output 1 (more), which its inputs and attributes do not make",
	}
	for what, text := range want {
		if !strings.Contains(found[what], text) {
			t.Errorf("%s: found %q, need %q", what, found[what], text)
		}
	}
	for what, problem := range found {
		if _, ok := want[what]; !ok {
			t.Errorf("%s: %s", what, problem)
		}
	}
}

// TestReadme builds the plugin that abi/README.md shows and holds it to the rules.
func TestReadme(t *testing.T) {
	readme := must.Value(os.ReadFile("../README.md"))(t)
	folder := t.TempDir()
	for language, file := range map[string]string{"cpp": "softshrink.cc", "yaml": manifest.FileName} {
		_, rest, found := strings.Cut(string(readme), "```"+language+"\n")
		code, _, closed := strings.Cut(rest, "```")
		if !found || !closed {
			t.Fatalf("found no block of %s in abi/README.md, need one", language)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(folder, file), []byte(code), 0o644))
	}
	found, passed := problems(t, build(t, folder, "libsoft_shrink.so"))
	if len(found) > 0 || passed != 1+checks {
		t.Errorf("found %v, %d checks passed, need none and %d", found, passed, 1+checks)
	}
}
