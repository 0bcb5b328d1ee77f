package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Limits of a manifest. They bound the work that a hostile file can ask for.
const (
	maxManifestBytes = 256 << 10
	maxVariants      = 32
	maxOperators     = 256
	maxNodes         = 256
	maxValues        = 64 // inputs or outputs of a node or pattern, values of a constraint
	maxCases         = 4096
)

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	operatorPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	valuePattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)
	typeNamePattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)
	factPattern     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	semverPattern   = regexp.MustCompile(
		`^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// IsName reports whether text has the form of a plugin's name.
func IsName(text string) bool { return namePattern.MatchString(text) }

// IsValueName reports whether text has the form of the name of an input, an output or a constant.
func IsValueName(text string) bool { return valuePattern.MatchString(text) }

// BlockKinds are the kinds of block that an operator can name under replaces.
var BlockKinds = []string{"attention"}

// Read reads the plugin.yaml of a folder, or of one inside of the program. Every problem is an *diagnostic.Error of
// kind ErrManifest with file and line; they come joined, at most twenty.
func Read(folder string) (*Manifest, error) {
	path := filepath.Join(folder, FileName)
	data, inside, err := embedded.Read(path)
	if !inside {
		data, err = storage.ReadRegular(path, maxManifestBytes)
	}
	if os.IsNotExist(err) {
		return nil, &diagnostic.Error{Kind: refusal.ErrManifest, Path: path, Found: "no such file",
			Needed: "the manifest of a plugin",
			Fix:    "point at the folder that holds " + FileName, Cause: err}
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrManifest, Path: path, Found: diagnostic.Cause(err), Cause: err}
	}
	return Parse(path, data)
}

// Parse reads data as the plugin.yaml that stands at path; path is used in errors only.
func Parse(path string, data []byte) (*Manifest, error) {
	r := &reader{path: path}
	sum := sha256.Sum256(data)
	m := &Manifest{path: path, sum: hex.EncodeToString(sum[:])}
	if root := r.document(data); root != nil {
		r.manifest(root, m)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return m, nil
}

func (r *reader) manifest(root *yaml.Node, m *Manifest) {
	f := r.fields(root, "the manifest", "schema_version", "name", "version", "abi", "license", "summary", "homepage",
		"variants", "operators", "cases")
	if f == nil {
		return
	}
	version, ok := f["schema_version"]
	if !ok {
		r.fail(root.Line, "schema_version is missing; add schema_version: %d", SchemaVersion)
		return
	}
	m.SchemaVersion = int(r.integer(version, "schema_version", 0, 1<<30))
	if r.problems == nil && m.SchemaVersion != SchemaVersion {
		r.fail(version.Line, "schema_version is %d, needed %d; install a graft that reads it", m.SchemaVersion, SchemaVersion)
		return
	}
	for _, key := range []string{"name", "version", "abi", "license", "summary", "variants", "operators"} {
		if f[key] == nil {
			r.fail(root.Line, "%s is missing; add it", key)
		}
	}
	m.Name = r.match(f["name"], "name", namePattern, "1 to 64 of a-z, 0-9 and -, not beginning with -")
	m.Version = r.match(f["version"], "version", semverPattern, "a semantic version such as 1.2.3")
	if s := r.text(f["abi"], "abi"); s != "" {
		v, err := ParseABIVersion(s)
		if err != nil {
			r.fail(f["abi"].Line, "abi: %v", err)
		}
		m.ABI = v
	}
	m.License = r.required(f["license"], "license")
	m.Summary = r.required(f["summary"], "summary")
	m.Homepage = r.text(f["homepage"], "homepage")
	if f["variants"] != nil {
		m.Variants = r.variants(f["variants"])
	}
	if f["operators"] != nil {
		m.Operators = r.operators(f["operators"])
	}
	if f["cases"] != nil {
		m.Cases = r.cases(f["cases"], m)
	}
}

// required reads text that may not be empty. An absent field is the caller's to report.
func (r *reader) required(n *yaml.Node, what string) string {
	before := len(r.problems)
	s := r.text(n, what)
	if n != nil && strings.TrimSpace(s) == "" && len(r.problems) == before {
		r.fail(n.Line, "%s is empty; fill it in", what)
	}
	return s
}

// match reads text of a given form.
func (r *reader) match(n *yaml.Node, what string, form *regexp.Regexp, need string) string {
	before := len(r.problems)
	s := r.text(n, what)
	if n != nil && len(r.problems) == before && !form.MatchString(s) {
		r.fail(n.Line, "%s is %q, needed %s", what, diagnostic.Clip(s), need)
	}
	return s
}

// oneOf reads text out of a closed list.
func (r *reader) oneOf(n *yaml.Node, what string, allowed ...string) string {
	before := len(r.problems)
	s := r.text(n, what)
	if n != nil && len(r.problems) == before && !slices.Contains(allowed, s) {
		r.fail(n.Line, "%s is %q, needed one of %s%s", what, diagnostic.Clip(s), strings.Join(allowed, ", "),
			suggestion(s, allowed))
	}
	return s
}

func (r *reader) variants(n *yaml.Node) []Variant {
	var out []Variant
	for i, item := range r.list(n, "variants", maxVariants) {
		what := fmt.Sprintf("variants[%d]", i)
		f := r.fields(item, what, "device", "os", "arch", "file")
		if f == nil {
			continue
		}
		for _, key := range []string{"device", "os", "arch", "file"} {
			if f[key] == nil {
				r.fail(item.Line, "%s.%s is missing; add it", what, key)
			}
		}
		v := Variant{
			Device: r.oneOf(f["device"], what+".device", Devices...),
			OS:     r.oneOf(f["os"], what+".os", "linux", "darwin", "windows", "freebsd"),
			Arch:   r.arch(f["arch"], what+".arch"),
			File:   r.text(f["file"], what+".file"),
			line:   item.Line,
		}
		if n := f["file"]; n != nil && v.File != "" && !plainFile(v.File) {
			r.fail(n.Line, "%s.file is %q, needed the plain name of a file beside %s, without folders", what,
				diagnostic.Clip(v.File), FileName)
		}
		for _, other := range out {
			if other.Device == v.Device && other.OS == v.OS && other.Arch == v.Arch && other.Device != "" {
				r.fail(item.Line, "%s repeats %s on %s/%s of line %d; keep one (instruction sets are chosen inside the library)",
					what, v.Device, v.OS, v.Arch, other.line)
			}
		}
		out = append(out, v)
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 && n.Anchor == "" {
		r.fail(n.Line, "variants is empty, needed at least one library")
	}
	return out
}

// arch reads a GOARCH and helps with the names that other tools use.
func (r *reader) arch(n *yaml.Node, what string) string {
	if n != nil {
		switch n.Value {
		case "x86_64", "x64", "x86-64":
			r.fail(n.Line, "%s is %q, needed amd64 (the name of Go's GOARCH)", what, n.Value)
			return ""
		case "aarch64":
			r.fail(n.Line, "%s is %q, needed arm64 (the name of Go's GOARCH)", what, n.Value)
			return ""
		}
	}
	return r.oneOf(n, what, "amd64", "arm64", "riscv64", "ppc64le", "s390x", "loong64")
}

// plainFile reports whether name is the name of a file in the folder itself: visible, no folders.
func plainFile(name string) bool {
	return len(name) <= 255 && filepath.IsLocal(name) && !strings.ContainsAny(name, `/\:`) && !strings.HasPrefix(name, ".")
}

func (r *reader) operators(n *yaml.Node) []Operator {
	var out []Operator
	names := map[string]int{}
	for i, item := range r.list(n, "operators", maxOperators) {
		what := fmt.Sprintf("operators[%d]", i)
		f := r.fields(item, what, "name", "replaces", "kv_cache", "where", "with", "cost", "cost_in_panels", "same_bits",
			"tests", "provides", "integer_times")
		if f == nil {
			continue
		}
		// An operator that replaces nothing is called by the host or named by models.
		needed := []string{"name", "cost"}
		if f["replaces"] == nil {
			needed = needed[:1]
			for _, key := range []string{"where", "with", "same_bits"} {
				if f[key] != nil {
					r.fail(f[key].Line, "%s.%s stands without replaces, which it is about; add replaces or remove it", what, key)
				}
			}
		}
		for _, key := range needed {
			if f[key] == nil {
				r.fail(item.Line, "%s.%s is missing; add it", what, key)
			}
		}
		op := Operator{
			Name: r.match(f["name"], what+".name", operatorPattern, "an operator type such as MatMul"),
			line: item.Line,
		}
		if op.Name != "" {
			what = "operator " + diagnostic.Clip(op.Name)
			if first, dup := names[op.Name]; dup {
				r.fail(item.Line, "%s stands twice (first on line %d); rename one", what, first)
			}
			names[op.Name] = item.Line
		}
		if f["where"] != nil {
			op.Where = r.where(f["where"], what+": where")
		}
		if f["cost"] != nil {
			op.Cost = r.cost(f["cost"], what+": cost")
		}
		if f["cost_in_panels"] != nil {
			c := r.cost(f["cost_in_panels"], what+": cost_in_panels")
			op.CostInPanels = &c
		}
		if f["same_bits"] != nil {
			op.SameBits = r.flag(f["same_bits"], what+".same_bits")
		}
		if f["replaces"] != nil {
			r.replaces(f["replaces"], f["with"], what, &op)
		}
		if f["tests"] != nil {
			op.Tests = r.tests(f["tests"], what+": tests", op.Replaces.Block != "" || f["replaces"] == nil)
		}
		if f["kv_cache"] != nil {
			op.KVCache = r.kvCache(f["kv_cache"], what+": kv_cache")
			if f["replaces"] != nil {
				r.fail(f["kv_cache"].Line, "%s both replaces a block and attends over the host's KV cache, needed one; make two "+
					"operators of it", what)
			}
		}
		if f["provides"] != nil {
			op.Provides = r.provides(f["provides"], what+": provides")
		}
		if f["integer_times"] != nil {
			r.integerTimes(f["integer_times"], what+": integer_times", &op)
		}
		out = append(out, op)
	}
	r.provided(out)
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.fail(n.Line, "operators is empty, needed at least one")
	}
	r.stores(out, names)
	for i := range out {
		r.knownOperators(&out[i], names)
	}
	return out
}

// knownOperators checks that a replacement names only operators that the manifest has.
func (r *reader) knownOperators(op *Operator, names map[string]int) {
	if op.With == nil {
		return
	}
	for _, w := range op.With {
		for _, n := range w.Nodes {
			if _, ok := names[n.Op]; n.Domain == Domain && !ok {
				r.fail(n.line, "operator %s: with: node %s is of domain %s but this manifest has no such operator; add it or "+
					"correct the name",
					diagnostic.Clip(op.Name), diagnostic.Clip(n.Op), Domain)
			}
		}
	}
}

func (r *reader) cost(n *yaml.Node, what string) Cost {
	f := r.fields(n, what, "bandwidth", "flops", "overhead_us")
	if f == nil {
		return Cost{}
	}
	for _, key := range []string{"bandwidth", "flops", "overhead_us"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing; add it", what, key)
		}
	}
	share := func(key string) float64 {
		before := len(r.problems)
		v := r.finite(f[key], what+"."+key)
		if f[key] != nil && len(r.problems) == before && (v <= 0 || v > 1) {
			r.fail(f[key].Line, "%s.%s is %v, needed a share of the machine's limit above 0 and at most 1", what, key, v)
		}
		return v
	}
	c := Cost{Bandwidth: share("bandwidth"), FLOPS: share("flops"),
		OverheadUS: r.finite(f["overhead_us"], what+".overhead_us")}
	if c.OverheadUS < 0 {
		r.fail(f["overhead_us"].Line, "%s.overhead_us is %v, needed 0 or more microseconds", what, c.OverheadUS)
	}
	return c
}

func (r *reader) replaces(n, with *yaml.Node, what string, op *Operator) {
	f := r.fields(n, what+": replaces", "block", "pattern")
	if f == nil {
		return
	}
	block, pat := f["block"], f["pattern"]
	switch {
	case block == nil && pat == nil:
		r.fail(n.Line, "%s: replaces is empty, needed block or pattern", what)
	case block != nil && pat != nil:
		r.fail(n.Line, "%s: replaces has both block and pattern, needed one; make two operators of it", what)
	case block != nil:
		op.Replaces.Block = r.oneOf(block, what+": replaces.block", BlockKinds...)
		if with != nil {
			r.fail(with.Line, "%s: with stands beside replaces.block, whose replacement the host writes; remove with", what)
		}
	default:
		before := len(r.problems)
		var forms []pattern.Form
		op.Replaces.Pattern, forms = r.pattern(pat, what+": pattern")
		if len(r.problems) > before {
			return // the names that with uses are not known
		}
		if with == nil {
			p := op.Replaces.Pattern
			node := WithNode{Op: op.Name, Domain: Domain, line: n.Line}
			for _, name := range p.Inputs {
				node.In = append(node.In, name+each(p, name))
			}
			for _, name := range p.Outputs {
				node.Out = append(node.Out, pattern.Plain(name))
			}
			op.With = Withs{{Nodes: []WithNode{node}, line: n.Line}}
		} else if op.With = r.withs(with, what+": with"); len(r.problems) > before {
			return
		}
		r.replacements(op, forms, what+": with")
	}
}

// each is what follows the name of an input of which repetitions have their own.
func each(p *Pattern, name string) string {
	for _, part := range p.Parts {
		if part.Repeat != nil && slices.Contains(part.Repeat.Each, name) {
			return "..."
		}
	}
	return ""
}
