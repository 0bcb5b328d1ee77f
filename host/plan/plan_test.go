package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// decoder is one layer of attention over a past.
const decoder = `
	in q f32[batch, 8, seq, 64]
	in k f32[batch, 8, seq, 64]
	in v f32[batch, 8, seq, 64]
	in past_key f32[batch, 8, past, 64]
	in past_value f32[batch, 8, past, 64]
	in mask f32[batch, 1, seq, past + seq]
	out y f32[batch, 8, seq, 64]
	out present_key f32[batch, 8, past + seq, 64]
	out present_value f32[batch, 8, past + seq, 64]
	present_key = Concat(past_key, k) axis=2
	present_value = Concat(past_value, v) axis=2
	kt = Transpose(present_key) perm=0,1,3,2
	a = MatMul(q, kt)
	s = Mul(a, 0.125)
	c = Add(s, mask)
	p = Softmax(c)
	y = MatMul(p, present_value)`

// parsed reads a manifest as it stands in a plugin's folder.
func parsed(t *testing.T, name, operators string) *manifest.Manifest {
	t.Helper()
	m := must.Value(manifest.Parse("plugin.yaml", []byte(fmt.Sprintf(`schema_version: 1
name: %s
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: for a test
variants:
  - {device: cpu, os: linux, arch: amd64, file: lib%[1]s.so}
operators:
%s`, name, operators))))(t)
	return m
}

// attention is a manifest with one operator for blocks of attention.
func attention(t *testing.T, name, operator, where string, overhead float64) *manifest.Manifest {
	return parsed(t, name, fmt.Sprintf(`  - name: %s
    replaces: {block: attention}
    where: {%s}
    cost: {bandwidth: 0.9, flops: 0.7, overhead_us: %g}
`, operator, where, overhead))
}

func makePlan(t *testing.T, text string, o plan.Options, manifests ...*manifest.Manifest) *plan.Plan {
	t.Helper()
	g, s := blockstest.Graph(t, text)
	return plan.Make(g, s, blocks.Find(g, s), manifests, o)
}

func TestChoices(t *testing.T) {
	fast := attention(t, "fast", "Fast", `dtype: float32`, 1)
	slow := attention(t, "slow", "Slow", `dtype: float32`, 3)
	half := attention(t, "half", "Half", `dtype: float16`, 1)
	lame := attention(t, "lame", "Lame", `dtype: float32`, 1e6)
	for _, c := range []struct {
		name      string
		manifests []*manifest.Manifest
		options   plan.Options
		operator  string
		reason    string
	}{
		{"no plugins", nil, plan.Options{}, "", "no loaded plugin implements blocks of kind attention"},
		{"the one there is", []*manifest.Manifest{fast}, plan.Options{}, "Fast", "x over the range"},
		{"the faster of two", []*manifest.Manifest{slow, fast}, plan.Options{}, "Fast", "x over the range"},
		{"constraints", []*manifest.Manifest{half}, plan.Options{}, "", "half: dtype is float32, needs float16"},
		{"constraints hold under Force", []*manifest.Manifest{half}, plan.Options{Force: true}, "",
			"half: dtype is float32, needs float16"},
		{"no gain", []*manifest.Manifest{lame}, plan.Options{}, "", "lame: expected 0.0"},
		{"no gain, forced", []*manifest.Manifest{lame}, plan.Options{Force: true}, "Lame", "(forced)"},
		{"excepted", []*manifest.Manifest{fast}, plan.Options{Except: []string{"fast"}}, "", "fast is excepted"},
		{"excepted, another is left", []*manifest.Manifest{fast, slow}, plan.Options{Except: []string{"fast"}}, "Slow", ""},
		{"asked for by name", []*manifest.Manifest{fast, slow}, plan.Options{Plugins: []string{"slow"}}, "Slow", ""},
		{"none asked for", []*manifest.Manifest{fast}, plan.Options{Plugins: []string{}}, "", "fast was not asked for"},
		{"a plan file", []*manifest.Manifest{fast, lame}, plan.Options{Fixed: map[string]string{"p_Softmax": "Lame"}}, "Lame",
			"(named in the plan file)"},
		{"a plan file without it", []*manifest.Manifest{fast}, plan.Options{Fixed: map[string]string{}}, "",
			"the plan file leaves it unchanged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := makePlan(t, decoder, c.options, c.manifests...)
			if len(p.Choices) != 1 {
				t.Fatalf("%d choices for one block", len(p.Choices))
			}
			got, replaced := p.Choices[0], 0
			name := ""
			if got.Operator != nil {
				name, replaced = got.Operator.Name, 1
			}
			if name != c.operator || !strings.Contains(got.Reason, c.reason) || p.Replaced() != replaced {
				t.Errorf("chose %q because %q, want %q because %q", name, got.Reason, c.operator, c.reason)
			}
		})
	}
}

// An operator whose expectation is below the thresholds is never used unforced,
// and one above them always is.
func TestThresholds(t *testing.T) {
	used, left := 0, 0
	for overhead := 0.25; overhead < 2e4; overhead *= 1.3 {
		m := attention(t, "some", "Some", `dtype: float32`, overhead)
		c := makePlan(t, decoder, plan.Options{}, m).Choices[0]
		x := makePlan(t, decoder, plan.Options{Force: true}, m).Choices[0].Expected
		if len(x.Samples) < 4 {
			t.Fatalf("only %d samples of the range", len(x.Samples))
		}
		for _, s := range x.Samples {
			if s.Unpatched/s.Operator < x.Worst*(1-1e-9) {
				t.Errorf("overhead %g: %v gains %g, less than the worst of %g", overhead, s.Symbols, s.Unpatched/s.Operator,
					x.Worst)
			}
		}
		gains := x.Speedup >= plan.MinGain && x.Worst >= plan.MaxLoss
		must.Equal(t, gains, c.Operator != nil, overhead, x.Speedup, x.Worst)
		if gains {
			used++
		} else {
			left++
		}
	}
	if used < 3 || left < 3 {
		t.Errorf("%d operators used and %d left: the test saw no threshold", used, left)
	}
}

func TestObstacles(t *testing.T) {
	for why, text := range map[string]string{
		"its projections lie inside the operator": `
			in x f32[batch, seq, 64]
			const w f32[64, 192]
			const b f32[192]
			out y f32[batch, seq, 64]
			y = com.microsoft.Attention(x, w, b) num_heads=4`,
		"its key padding mask lowers scores by a number": `
			in q f32[batch, seq, 64]
			in lengths i32[batch]
			out y f32[batch, seq, 64]
			y = com.microsoft.MultiHeadAttention(q, q, q, , lengths) num_heads=4`,
	} {
		p := makePlan(t, text, plan.Options{Force: true}, attention(t, "fast", "Fast", `dtype: float32`, 1))
		if c := p.Choices[0]; c.Operator != nil || !strings.Contains(c.Reason, why) {
			t.Errorf("chose %v because %q, want %q", c.Operator, c.Reason, why)
		}
	}
}

// No attribute of an attention operator says how a past lies: other layouts than the usual one are left.
func TestPastLayout(t *testing.T) {
	text := strings.NewReplacer("[batch, 8, past, 64]", "[batch, past, 8, 64]", "[batch, 8, seq, 64]",
		"[batch, seq, 8, 64]",
		"[batch, 8, past + seq, 64]", "[batch, past + seq, 8, 64]", "axis=2", "axis=1",
		"kt = Transpose(present_key) perm=0,1,3,2",
		"kt = Transpose(present_key) perm=0,2,3,1", "MatMul(q, kt)", "MatMul(qt, kt)", "p = Softmax(c)",
		"p = Softmax(c)\nvt = Transpose(present_value) perm=0,2,1,3\nqt = Transpose(q) perm=0,2,1,3",
		"MatMul(p, present_value)", "MatMul(p, vt)").Replace(decoder)
	lines := strings.Split(text, "\n")
	for i, line := range lines { // the query is turned before it is read
		if strings.Contains(line, "qt = ") {
			lines = append(append(append([]string{}, lines[:10]...), line),
				append(append([]string{}, lines[10:i]...), lines[i+1:]...)...)
		}
	}
	text = strings.Replace(strings.Join(lines, "\n"), "out y f32[batch, seq, 8, 64]", "out y f32[batch, 8, seq, 64]", 1)
	m := attention(t, "flash", "Flash", `dtype: float32`, 1)
	if c := makePlan(t, text, plan.Options{Force: true}, m).Choices[0]; c.Operator != nil ||
		!strings.Contains(c.Reason, "its past lies as bshd, an operator takes and makes bhsd") {
		t.Errorf("chose %v because %q", c.Operator, c.Reason)
	}
	if c := makePlan(t, decoder, plan.Options{Force: true}, m).Choices[0]; c.Operator == nil {
		t.Errorf("left a past in the usual layout because %q", c.Reason)
	}
}

func TestPlanFiles(t *testing.T) {
	fast := attention(t, "fast", "Fast", `dtype: float32`, 1)
	manifests := []*manifest.Manifest{fast, attention(t, "lame", "Lame", `dtype: float32`, 1)}
	p := makePlan(t, decoder, plan.Options{Force: true}, fast)
	path := filepath.Join(t.TempDir(), "plan.json")
	must.Succeed(t, plan.WriteFile(path, p))
	got := must.Value(plan.ReadFile(path, manifests))(t)
	must.Equal(t, cmp.Diff(map[string]string{"p_Softmax": "Fast"}, got), "")
	for _, c := range []struct{ text, want string }{
		{`{"schema_version": 2, "choices": []}`, "has schema_version 2, need 1"},
		{`{"schema_version": 1, "choise": []}`, "is no plan file"},
		{`{"schema_version": 1, "choices": [{"node": "n"}]}`, "has a choice without node or operator"},
		{`no JSON`, "is no plan file"},
		{`{"schema_version": 1, "choices": [{"node": "n", "operator": "fasst"}]}`,
			`names the operator "fasst" for n, and no plugin that is loaded has it, did you mean Fast?`},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o644))
		must.Fail(t, must.Error(plan.ReadFile(path, manifests)), c.want, path)
	}
	must.Fail(t, must.Error(plan.ReadFile(path+".missing", manifests)), "cannot read the plan file")
	must.Fail(t, plan.WriteFile(filepath.Join(path, "inside", "a.file"), p), "cannot write the plan file")
}
