package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/author"
	"github.com/opgraft/graft/host/measure/changes"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// everyCommand are command lines of all commands, by their paths. MODEL, FOLDER, ENCODER, RERANKER, PLUGIN, TEXTS,
// PAIRS, SOURCES, LOCK and OUT stand for files.
var everyCommand = map[string][]string{
	"graft": {"", "--version", "MODEL", "--MODEL"},
	"graft ab": {"MODEL --force --rounds 1 --warmup 1", "MODEL --a MODEL", "MODEL --dim MODEL=1",
		"MODEL --force --b auto,fused-gelu --dim batch=1,2 --rounds 1 --warmup 1 --report OUT",
		"FOLDER --rounds 1 --max-new-tokens 2 --prompt-length 4 --b keys_values",
		"FOLDER --rounds 1 --max-new-tokens 2 --prompt-length 4 --b weights=MODEL",
		"FOLDER --rounds 1 --max-new-tokens 2 --prompt-length 4 --b draft=lookup",
		"FOLDER --rounds 1 --max-new-tokens 2 --prompt-length 4 --b draft=MODEL",
		"FOLDER --b keys:skip=0.5 --input TEXTS --references TEXTS --rounds 1 --max-new-tokens 2",
		"FOLDER --input TEXTS --window 9", "FOLDER --references TEXTS",
		"FOLDER --require x",
		"FOLDER --rounds 1 --max-new-tokens 2 --prompt-length 4 --b cache=MODEL"},
	"graft ab compare": {"testdata/result.json testdata/result.json", "OUT testdata/result.json --require 3x",
		"testdata/result.json MODEL", "MODEL TEXTS"},
	"graft bisect": {"MODEL --b flash-decode --force",
		"MODEL --b flash-decode --force --absolute 1e-30 --relative 1e-30 --write-plan OUT", "MODEL --b none", "FOLDER"},
	"graft completion": {"bash", "zsh", "fish", "MODEL"},
	"graft doctor":     {"", "--plugins-dir PLUGIN --fix -q"},
	"graft embed": {"ENCODER --input TEXTS", "ENCODER --input TEXTS -o jsonl -o OUT",
		"ENCODER --prompt MODEL --input TEXTS", "MODEL", "FOLDER --input TEXTS", "ENCODER --model-file MODEL"},
	"graft quantize": {"FOLDER --output OUT", "FOLDER --output OUT --weights int4,logits=float32",
		"FOLDER --output OUT --max-kl 1 --input TEXTS",
		"FOLDER --output OUT --weights int4,zero-points=true --calibrate TEXTS", "FOLDER --output OUT --calibrate TEXTS",
		"MODEL --output OUT", "MODEL --output OUT --weights MODEL", "FOLDER", "TEXTS --output OUT"},
	"graft profile": {"MODEL --rounds 1 --warmup 1", "MODEL --patched --force --rounds 1 --warmup 1",
		"MODEL --dim MODEL=1", "MODEL --force", "TEXTS", "MODEL --inputs MODEL",
		"FOLDER --rounds 1 --warmup 1 --max-new-tokens 4 --prompt-length 4", "FOLDER --inputs MODEL", "MODEL --beam 2"},
	"graft predict": {"RERANKER --tsv --input PAIRS", "RERANKER --input TEXTS -o jsonl -o OUT",
		"RERANKER --input TEXTS --label MODEL", "MODEL", "FOLDER --input TEXTS"},
	"graft rerank": {"RERANKER --tsv --input PAIRS", "RERANKER --tsv --input PAIRS -o jsonl -o OUT",
		"RERANKER --input TEXTS", "MODEL", "FOLDER --input TEXTS"},
	"graft generate": {"FOLDER --input TEXTS", "FOLDER --input TEXTS --format jsonl",
		"FOLDER --input TEXTS --output OUT", "FOLDER --input TEXTS --output OUT --weights int8",
		"FOLDER --weights MODEL", "FOLDER --input TEXTS --draft lookup", "FOLDER --input TEXTS --draft FOLDER,weights=int8",
		"FOLDER --input TEXTS --draft MODEL", "FOLDER --set MODEL", "MODEL", "FOLDER --set MODEL=1",
		"FOLDER --input TEXTS --output OUT --weights bf16", "FOLDER --input TEXTS --output OUT --cache int8",
		"FOLDER --cache MODEL"},
	"graft help": {"", "plugin list", "MODEL"},
	"graft man":  {"OUT", "TEXTS"},
	"graft inspect": {"MODEL", "MODEL --plugins MODEL", "FOLDER", "FOLDER --attention MODEL",
		"FOLDER --cache MODEL", "MODEL --device MODEL", "MODEL --plan TEXTS", "MODEL --profile", "MODEL --dim MODEL=1",
		"FOLDER --profile"},
	"graft graph": {"MODEL --key 0123456789", "FOLDER --key 0123456789", "MODEL --key MODEL"},
	"graft run":   {"", "MODEL", "-- MODEL", "--padding MODEL -- sh", "-- no-such-program"},
	"graft pull": {"org/name", "MODEL", "org/name --variant MODEL", "org/name --file a --variant b",
		"org/name@MODEL -o json"},
	"graft patch":          {"MODEL --output OUT --force", "FOLDER --output OUT"},
	"graft plugin":         {"", "MODEL"},
	"graft plugin inspect": {"PLUGIN", "MODEL", "TEXTS"},
	"graft plugin build":   {"SOURCES", "MODEL"},
	"graft plugin dev":     {"SOURCES MODEL", "MODEL MODEL", "MODEL"},
	"graft plugin new": {"fresh --to OUT", "MODEL --to OUT", "fresh --kind MODEL --to OUT",
		"fresh --lang MODEL --to OUT"},
	"graft plugin sdk":      {"OUT", "TEXTS"},
	"graft plugin test":     {"PLUGIN", "MODEL"},
	"graft plugin list":     {"", "--plugins-dir PLUGIN"},
	"graft plugin bundle":   {"OUT --lock LOCK", "TEXTS --lock LOCK", "OUT --lock TEXTS"},
	"graft plugin install":  {"PLUGIN", "TEXTS", "--locked --lock LOCK", "--locked --lock LOCK --mirror MODEL"},
	"graft plugin lock":     {"--out OUT", "MODEL --out OUT", "--out TEXTS"},
	"graft plugin rollback": {"fused-gelu --to 0.1.0", "fused-gelu", "MODEL", "fused-gelu --to 0.1.0 --lock LOCK"},
	"graft plugin upgrade": {"fused-gelu PLUGIN", "fused-gelu PLUGIN --lock LOCK", "MODEL PLUGIN",
		"fused-gelu oci://127.0.0.1:1/fused-gelu:1"},
	"graft plugin pull":     {"oci://127.0.0.1:1/a:1 --plain-http --to OUT", "MODEL", "https://a/b"},
	"graft plugin push":     {"TEXTS oci://127.0.0.1:1/a:1", "TEXTS MODEL", "MODEL oci://127.0.0.1:1/a:1 --plain-http"},
	"graft plugin outdated": {"--index testdata/index.yaml", "--index MODEL"},
	"graft plugin remove":   {"fused-gelu", "MODEL"},
	"graft plugin verify":   {"PLUGIN -q=false", "MODEL"},
	"graft tune":            {"FOLDER --beam 1 --batch-size 1 --rounds 1 --max-new-tokens 2", "MODEL"},
	"graft version":         {""},
}

// subjects are the files that command lines name.
type subjects struct{ model, folder, plugin, texts, out, encoder, reranker, pairs, sources, lock string }

// beginPlugin makes the sources of a plugin that takes a moment to compile.
func beginPlugin(t *testing.T, folder string) {
	t.Helper()
	must.Value(author.New(folder, author.Project{Name: "begun", Kind: "fold", Language: "c"}))(t)
}

// needsInstalled are commands of an installed plugin.
var needsInstalled = map[string]bool{"graft plugin remove": true, "graft plugin upgrade": true,
	"graft plugin rollback": true}

// lockGelu writes a lock of the plugin that command lines name.
func lockGelu(t *testing.T, s *subjects) {
	t.Helper()
	var talk bytes.Buffer
	if code := run([]string{"plugin", "lock", "--plugins-dir", s.plugin, "fused-gelu", "--out", s.lock}, io.Discard,
		&talk); code != exitOK {
		t.Fatal(talk.String())
	}
}

func (s *subjects) arguments(path, line string, more ...string) []string {
	args := append(strings.Fields(path)[1:], strings.Fields(line)...)
	for i, a := range args {
		for name, value := range map[string]string{"MODEL": s.model, "FOLDER": s.folder, "PLUGIN": s.plugin, "TEXTS": s.texts,
			"OUT": s.out, "ENCODER": s.encoder, "RERANKER": s.reranker, "PAIRS": s.pairs, "SOURCES": s.sources, "LOCK": s.lock,
			"ARCHIVE": s.out + signable + ".tar.gz", "KEY": s.out + signable + ".key", "PUBLIC": s.out + signable + ".pub"} {
			args[i] = strings.ReplaceAll(args[i], name, value)
			if a != args[i] {
				break
			}
		}
	}
	return append(args, more...)
}

// forms are those of the output; one where a command takes seconds.
func forms(line string) []string {
	if strings.Contains(line, "FOLDER") && strings.Contains(line, "--rounds") {
		return []string{"text"}
	}
	return []string{"text", "json"}
}

// paths are those of all commands that people see, the ones without a line in everyCommand being an error.
func paths(t *testing.T) []string {
	t.Helper()
	var list []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Hidden {
			return
		}
		if list = append(list, cmd.CommandPath()); everyCommand[cmd.CommandPath()] == nil {
			t.Errorf("no line for %s; add one to everyCommand", cmd.CommandPath())
		}
	}
	walk((&cli{}).root())
	slices.Sort(list)
	return list
}

// alone hides the user's own plugins and settings from a test.
func alone(t *testing.T) {
	t.Helper()
	at := must.Value(ort.Find(""))(t)
	plugins := must.Value(filepath.Abs("../../build/plugins"))(t)
	for name, value := range map[string]string{"GRAFT_ONNXRUNTIME": at.Path, "GRAFT_PLUGIN_PATH": plugins,
		"GRAFT_PLUGIN_UNVERIFIED": "1",
		"XDG_DATA_HOME":           t.TempDir(), "XDG_CACHE_HOME": t.TempDir(), "HF_HOME": t.TempDir(),
		"HF_HUB_OFFLINE": "1"} {
		t.Setenv(name, value)
	}
}

// TestFullDevice: what cannot be written is an error of every command; a sample is a third of them.
func TestFullDevice(t *testing.T) {
	alone(t)
	full := must.Value(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	dir := t.TempDir()
	s := &subjects{"../../models/tiny-gpt2/model.onnx", "../../models/g2p", "../../build/plugins/fused-gelu",
		filepath.Join(dir, "words"), filepath.Join(dir, "out"),
		"../../models/encoders/embedder", "../../models/encoders/reranker", filepath.Join(dir, "pairs"),
		filepath.Join(dir, "begun"), filepath.Join(dir, "lock")}
	beginPlugin(t, s.sources)
	lockGelu(t, s)
	write(t, s.pairs, "a query\ta document\n")
	must.Succeed(t, os.WriteFile(s.texts, []byte("a\n"), 0o644))
	for i, path := range paths(t) {
		if !sample.Has(i, 3) {
			continue
		}
		lines := everyCommand[path][:1]
		if path == "graft" {
			lines = everyCommand[path][:2]
		}
		if path == "graft plugin pull" || path == "graft plugin push" || path == "graft pull" {
			continue // they need a server
		}
		if path == "graft run" {
			continue // what it starts writes
		}
		if path == "graft man" {
			continue // it writes a folder alone
		}
		for _, line := range lines {
			for _, form := range forms(line) {
				os.RemoveAll(s.out)
				s.ready(t, path)
				if path == "graft ab compare" {
					writeResult(t, s.out, "")
				}
				if needsInstalled[path] && run([]string{"plugin", "install", s.plugin}, io.Discard, io.Discard) != exitOK {
					t.Fatal("no plugin to remove")
				}
				var talk bytes.Buffer
				args := s.arguments(path, line, "--output="+form)
				if code := run(args, full, &talk); code != exitError ||
					!strings.Contains(talk.String(), "could not be written: no space left on device") {
					t.Errorf("%q >/dev/full: exit code %d, %s", args, code, talk.String())
				}
			}
		}
	}
}

// hostile is what a model or a plugin may hold instead of a name.
const hostile = "\x1b[31m\u202e\u200b\u009b2J|`<script>\ngraft: forged\r\x7f\xff"

// TestHostileText: nothing that a model, a plugin, a text or a path holds reaches a terminal raw, by any command; a
// sample is the first line of each and a third of the others.
func TestHostileText(t *testing.T) {
	alone(t)
	dir := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", "_"))
	s := &subjects{filepath.Join(dir, "model"+hostile+".onnx"), filepath.Join(dir, "folder"), filepath.Join(dir, "plugin"),
		filepath.Join(dir, "texts"), filepath.Join(dir, "out"),
		filepath.Join(dir, "encoder"), filepath.Join(dir, "reranker"), filepath.Join(dir, "pairs"),
		filepath.Join(dir, "begun"), filepath.Join(dir, "lock")}
	for from, to := range map[string]string{"../../models/encoders/embedder": s.encoder,
		"../../models/encoders/reranker": s.reranker} {
		must.Succeed(t, os.CopyFS(to, os.DirFS(from)))
		write(t, filepath.Join(to, "modules.json"),
			`[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling\u001b[31m"}]`)
	}
	hostileModel(t, "../../models/encoders/reranker/model.onnx", filepath.Join(s.reranker, "model.onnx"))
	beginPlugin(t, s.sources)
	write(t, s.pairs, "a\x1b[31m\u202e\tb\nc\tb\xff\n\x1b]0;title\a\n")
	hostileModel(t, "../../models/tiny-gpt2/model.onnx", s.model)
	for _, name := range []string{"encoder_model.onnx", "decoder_model_merged.onnx", "config.json",
		"generation_config.json", "tokenizer.json"} {
		copyFile(t, filepath.Join("../../models/g2p", name), filepath.Join(s.folder, name))
	}
	library := must.Value(filepath.Abs("../../build/plugins/fused-gelu/libfused_gelu.so"))(t)
	copyFile(t, library, filepath.Join(s.plugin, "libfused_gelu.so"))
	manifest := must.Value(os.ReadFile("../../build/plugins/fused-gelu/plugin.yaml"))(t)
	text := `"\e[31m\u202e\u200b\u009b2J|<script>\ngraft: forged\r\x7f"`
	bad := strings.NewReplacer("license: Apache-2.0", "license: "+text, "summary: GELU",
		"summary: "+text+" #").Replace(string(manifest))
	write(t, filepath.Join(s.plugin, "plugin.yaml"), bad)
	write(t, s.texts, "a\x1b[31m\u202e\nb\xff\n\x1b]0;title\a\n")
	lockGelu(t, s)
	for _, path := range paths(t) {
		for i, line := range everyCommand[path] {
			if i > 0 && !sample.Has(i+len(path), 3) {
				continue
			}
			for _, form := range forms(line) {
				if path == "graft plugin dev" && line == everyCommand[path][0] {
					continue // it would wait for a change
				}
				os.RemoveAll(s.out)
				os.Remove(s.out + ".graft.json")
				s.ready(t, path)
				if path == "graft ab compare" {
					writeResult(t, s.out, hostile)
				}
				if needsInstalled[path] {
					run([]string{"plugin", "install", s.plugin}, io.Discard, io.Discard)
				}
				var out, talk bytes.Buffer
				args := s.arguments(path, line, "--output="+form)
				run(args, &out, &talk)
				if path == "graft generate" && form == "text" && !strings.Contains(line, "OUT") &&
					!strings.Contains(line, "jsonl") {
					out.Reset() // the model's own words, which a pipe gets as they are
				}
				for what, text := range map[string]string{"stdout": out.String(), "stderr": talk.String()} {
					for l := range strings.Lines(text) {
						l = strings.TrimSuffix(l, "\n")
						if path == "graft completion" {
							l = strings.ReplaceAll(l, "\t", "")
						}
						if diagnostic.Printable(l) != l || strings.HasPrefix(l, "graft: forged") {
							t.Errorf("%q: found %q on %s", args, l, what)
							break
						}
					}
				}
			}
		}
	}
}

// writeResult writes the result of testdata to a file, all of whose texts end in one.
func writeResult(t *testing.T, to, end string) {
	t.Helper()
	m := must.Value(changes.Read("testdata/result.json"))(t)
	r := m.Result
	r.Model, r.Environment.CPU, r.Cells[0].Inputs[0].Name = r.Model+end, r.Environment.CPU+end, "x"+end
	r.A.Name, r.Sides[0].Name, r.Cells[0].Sides[0].Name = "none"+end, "auto"+end, "auto"+end
	r.Sides[0].Plan = []comparison.Choice{{Node: "Softmax" + end, Kind: "attention", Plugin: "flash-decode" + end,
		Operator: "FlashDecode" + end}}
	data := must.Value(json.Marshal(r.Result()))(t)
	write(t, to, string(data))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data := must.Value(os.ReadFile(from))(t)
	write(t, to, string(data))
}

// hostileModel writes a model all of whose names end in hostile.
func hostileModel(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must.Succeed(t, err)
	var m onnx.Model
	must.Succeed(t, proto.Unmarshal(data, &m))
	poison(m.ProtoReflect())
	if data, err = proto.Marshal(&m); err != nil {
		t.Fatal(err)
	}
	write(t, to, string(data))
}

// poison appends hostile to all strings of a message but those that say what runs.
func poison(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		kept := f.Name() == "op_type" || f.Name() == "domain" || f.Parent().Name() == "Attribute" && f.Name() == "name"
		switch {
		case f.IsMap() || kept:
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				poison(v.List().Get(i).Message())
			}
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(v.List().Get(i).String()+hostile))
			}
		case f.Kind() == protoreflect.MessageKind:
			poison(v.Message())
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(v.String()+hostile))
		}
		return true
	})
}

// TestOneWriter: what commands print goes through output.go, which escapes it.
func TestOneWriter(t *testing.T) {
	files := must.Value(filepath.Glob("*.go"))(t)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "output.go" || name == "errors.go" {
			continue
		}
		set := token.NewFileSet()
		file := must.Value(parser.ParseFile(set, name, nil, 0))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			on, ok := s.X.(*ast.Ident)
			if ok && (on.Name == "fmt" && (strings.HasPrefix(s.Sel.Name, "Fprint") || strings.HasPrefix(s.Sel.Name, "Print")) ||
				on.Name == "os" && (s.Sel.Name == "Stdout" || s.Sel.Name == "Stderr") && name != "main.go") {
				t.Errorf("%s: found %s.%s, needed a page, c.say or c.warn, which escape what they print", set.Position(s.Pos()),
					on.Name, s.Sel.Name)
			}
			return true
		})
	}
}
