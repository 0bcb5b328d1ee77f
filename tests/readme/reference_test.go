package readme

import (
	"encoding/json"
	"github.com/opgraft/graft/internal/must"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// text reads a document.
func text(t *testing.T, document string) string {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join(root(t), document)))(t)
	return string(data)
}

// output runs graft in a sandbox and returns what it prints on stdout.
func (s *sandbox) output(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("bash", append([]string{"-c", `graft "$@"`, "graft"}, args...)...)
	cmd.Dir, cmd.Env = s.folder, s.env
	out := must.Value(cmd.Output())(t, "graft", strings.Join(args, " "))
	return out
}

// TestEveryCommandIsDocumented expects an example of each command in docs/cli.md, and each flag that the page names in
// the help of some command.
func TestEveryCommandIsDocumented(t *testing.T) {
	s, document := newSandbox(t), text(t, "docs/cli.md")
	command := regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`)
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	seen := 0
	var helps strings.Builder
	var walk func(path []string)
	walk = func(path []string) {
		help := string(s.output(t, append(slices.Clone(path), "--help")...))
		helps.WriteString(help)
		_, list, _ := strings.Cut(help, "Available Commands:")
		list, _, _ = strings.Cut(list, "\nFlags:")
		for _, m := range command.FindAllStringSubmatch(list, -1) {
			if m[1] == "help" {
				continue
			}
			seen++
			whole := append(slices.Clone(path), m[1])
			if line := "graft " + strings.Join(whole, " "); !strings.Contains(document, line) {
				t.Errorf("docs/cli.md has no example of %s", line)
			}
			walk(whole)
		}
	}
	walk(nil)
	if seen < 10 {
		t.Errorf("found %d commands, there are more: --help is not understood", seen)
	}
	for _, f := range flag.FindAllString(document, -1) {
		if !strings.Contains(helps.String(), f) {
			t.Errorf("docs/cli.md names %s, which no command has", f)
		}
	}
}

// TestKeysAreCurrent: docs/json.md is what docs/gen makes of the types that commands print.
func TestKeysAreCurrent(t *testing.T) {
	cmd := exec.Command("go", "run", "./docs/gen", "-")
	cmd.Dir = root(t)
	out := must.Value(cmd.Output())(t, "go run ./docs/gen")
	must.Equal(t, string(out), text(t, "docs/json.md"))
}

// TestEveryKeyIsDocumented runs each command with -o json and expects every key in docs/json.md. The
// manifest of a plugin has keys of its own, which abi/README.md has.
func TestEveryKeyIsDocumented(t *testing.T) {
	s := newSandbox(t)
	document := text(t, "docs/json.md")
	for name, args := range map[string][]string{"model.json": {"ab", "model.onnx", "--rounds", "1", "-o", "json"},
		"generated.json": {"ab", "models/g2p", "--rounds", "1", "--prompt-length", "9", "--max-new-tokens", "4", "-o",
			"json"}} {
		must.Succeed(t, os.WriteFile(filepath.Join(s.folder, name), s.output(t, args...), 0o644))
	}
	// the last has options of generation_config.json
	own := []string{"manifest", "library", "variant", "info", "symbols", "lengths", "search"}
	for _, args := range [][]string{
		{"doctor", "--measure"}, {"inspect", "model.onnx"}, {"inspect", "model.onnx", "--profile"},
		{"profile", "model.onnx", "--rounds", "1"}, {"patch", "model.onnx", "-o", "patched.onnx"},
		{"ab", "model.onnx", "--rounds", "1"},
		{"bisect", "model.onnx", "--b", "auto"},
		{"ab", "compare", "model.json", "model.json"},
		{"ab", "compare", "generated.json", "generated.json"},
		{"ab", "models/g2p", "--a", "none", "--b", "auto", "--input", "words.txt", "--references", "words.txt",
			"--batch-size", "1", "--rounds", "1", "--max-new-tokens", "4"},
		{"generate", "models/g2p", "--input", "words.txt", "--output", "sounds.txt"},
		{"quantize", "models/g2p", "-o", "g2p-quantised", "--max-kl", "0.05", "--input", "words.txt"},
		{"embed", "models/encoders/embedder", "--input", "words.txt", "-o", "vectors.npy"},
		{"rerank", "models/encoders/reranker", "--tsv", "--input", "pairs.tsv", "-o", "ranked.jsonl"},
		{"predict", "models/encoders/reranker", "--input", "words.txt", "-o", "labels.jsonl"},
		{"plugin", "install", "flash-decode"}, {"plugin", "list"},
		{"plugin", "inspect", "flash-decode"}, {"plugin", "verify"}, {"plugin", "remove", "flash-decode"}, {"version"},
	} {
		var object map[string]any
		if err := json.Unmarshal(s.output(t, append(args, "-o", "json")...), &object); err != nil {
			t.Errorf("graft %s: %v", strings.Join(args, " "), err)
			continue
		}
		missing := map[string]bool{}
		var walk func(at string, value any)
		walk = func(at string, value any) {
			switch v := value.(type) {
			case map[string]any:
				for key, below := range v {
					if !regexp.MustCompile("`[^`]*\\b" + regexp.QuoteMeta(key) + "\\b[^`]*`").MatchString(document) {
						missing[at+key] = true
					}
					if !slices.Contains(own, key) {
						walk(at+key+".", below)
					}
				}
			case []any:
				for _, below := range v {
					walk(at, below)
				}
			}
		}
		walk("", object)
		for key := range missing {
			t.Errorf("graft %s: key %s is not documented", strings.Join(args, " "), key)
		}
	}
}

// TestEveryFolderIsDocumented compares CONTRIBUTING.md with the packages that there are, tests/README.md
// with the folders of tests, and bench/README.md with the figures.
func TestEveryFolderIsDocumented(t *testing.T) {
	lines := func(name string, args ...string) []string {
		cmd := exec.Command(name, args...)
		cmd.Dir = root(t)
		out := must.Value(cmd.Output())(t, name, strings.Join(args, " "))
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	need := func(document, code string) {
		if !strings.Contains(text(t, document), "`"+code+"`") {
			t.Errorf("%s does not have `%s`", document, code)
		}
	}
	const module = "github.com/opgraft/graft/"
	for _, p := range lines("go", "list", "./host/...", "./cmd/...") {
		p = strings.TrimPrefix(p, module)
		// Below a package of host stands what that package alone uses.
		if strings.Count(p, "/") == 1 {
			need("CONTRIBUTING.md", p)
		}
	}
	for _, p := range lines("go", "list", "./tests/...") {
		need("tests/README.md", strings.TrimPrefix(p, module+"tests/"))
	}
	for _, figure := range lines("go", "run", "./bench", "-list") {
		name, _, _ := strings.Cut(figure, " ")
		need("bench/README.md", name)
	}
}

// TestQuotedMessagesExist looks up the messages and reasons that documents quote in the source: they
// must not go on quoting what nothing says any more.
func TestQuotedMessagesExist(t *testing.T) {
	var source strings.Builder
	for _, folder := range []string{"host", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			source.Write(data)
			return err
		})
		must.Succeed(t, err)
	}
	joined := regexp.MustCompile(`" \+\n\s*"`).ReplaceAllString(source.String(), "") // strings over several lines
	code := strings.ReplaceAll(joined, `\"`, `"`)
	quoted := 0
	for document, after := range map[string][]string{
		"docs/troubleshooting.md": {"| message |"},
		"docs/recognition.md":     {"## Recognised, and left unchanged", "## Not recognised"},
	} {
		whole := text(t, document)
		for _, start := range after {
			_, section, found := strings.Cut(whole, start)
			if !found {
				t.Fatalf("%s has no %q", document, start)
			}
			section, _, _ = strings.Cut(section, "\n\n#")
			section, _, _ = strings.Cut(section, "```")
			for _, m := range messages(section) {
				quoted++
				for _, part := range fragments(m) {
					if !strings.Contains(code, part) {
						t.Errorf("%s quotes %q, and no source says %q", document, m, part)
					}
				}
			}
		}
	}
	if quoted < 15 {
		t.Errorf("found %d quoted messages, there are more", quoted)
	}
}

// messages are the first cells of a table, or the code spans of other text that are sentences.
func messages(section string) []string {
	section = regexp.MustCompile(`([^|])\n([^|])`).ReplaceAllString(section, "$1 $2")
	var list []string
	span := regexp.MustCompile("`([^`]+)`")
	for _, line := range strings.Split(section, "\n") {
		if strings.HasPrefix(line, "|") {
			line = strings.SplitN(line, "|", 3)[1]
		}
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			if strings.Count(m[1], " ") >= 2 && !strings.HasPrefix(m[1], "graft ") {
				list = append(list, m[1])
			}
		}
	}
	return list
}

// fragments are the fixed parts of a message: what stands between "...", names and numbers.
func fragments(message string) []string {
	var list []string
	for _, part := range regexp.MustCompile(`\.\.\.|[;:] |"x"|\bNx\b|PLUGIN: ?|: ?$|attention$`).Split(message, -1) {
		if part = strings.Trim(part, " ;:,"); len(part) > 4 {
			list = append(list, part)
		}
	}
	return list
}
