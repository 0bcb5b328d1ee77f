package hub

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/modeldir"
)

// model is one of the models that a repository holds: a set of graphs that graft opens together, with what lies
// beside them.
type model struct {
	home    string            // folder of the configuration, "." for the repository's root
	folder  string            // folder of the graphs
	variant string            // what stands in the graphs' names after optimum's: q4 of model_q4.onnx; "" for nothing
	builder bool              // onnxruntime-genai's model builder wrote it, with names of its own
	graphs  map[string]string // optimum's name without .onnx to the path; of others their own name
	plain   bool              // home opens as it is: no file needs another name
}

// bases are the names of graphs that optimum writes and graft opens, those first that begin with others.
var bases = []string{"decoder_with_past_model", "decoder_model_merged", "decoder_model", "encoder_model", "model"}

// graphEnd is that of a graph's name.
const graphEnd = ".onnx"

// Float32 names the variant that has no name of its own.
const Float32 = "float32"

// aliases are other names of variants, as transformers.js and people say them. A name of the repository's own comes
// first.
var aliases = map[string][]string{
	"fp32": {Float32}, "f32": {Float32}, "full": {Float32}, "float16": {"fp16"}, "f16": {"fp16"}, "half": {"fp16"},
	"q8": {"quantized", "int8"}, "int8": {"quantized", "q8"}, "quantised": {"quantized"}, "int4": {"q4"},
}

// splitName cuts the name of a graph into optimum's and the variant.
func splitName(stem string) (base, variant string, ok bool) {
	for _, base := range bases {
		if rest, found := strings.CutPrefix(stem, base); found {
			if rest == "" {
				return base, "", true
			}
			if strings.ContainsRune("_-.", rune(rest[0])) && len(rest) > 1 {
				return base, rest[1:], true
			}
		}
	}
	return "", "", false
}

// label is what the model is called by: its folder, and the variant.
func (m *model) label() string {
	var parts []string
	if m.home != "." {
		parts = append(parts, m.home)
	}
	if rel := relative(m.home, m.folder); rel != "." && rel != "onnx" {
		parts = append(parts, strings.TrimPrefix(rel, "onnx/"))
	}
	switch {
	case m.variant != "":
		parts = append(parts, m.variant)
	case m.builder && len(parts) == 0:
		return "genai"
	}
	return cmp.Or(strings.Join(parts, "/"), Float32)
}

// folderName is a label as the name of one folder, another one for each label: . and .. are no names.
func folderName(label string) string {
	if label == "." || label == ".." {
		return strings.ReplaceAll(label, ".", "%2E")
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(label)
}

// relative is a path below a folder.
func relative(folder, p string) string {
	switch {
	case folder == ".":
		return p
	case p == folder:
		return "."
	}
	return strings.TrimPrefix(p, folder+"/")
}

// listing are the files of a commit, by folder.
type listing struct {
	files   map[string]File // by path
	folders map[string][]string
}

func newListing(files []File) *listing {
	l := &listing{files: map[string]File{}, folders: map[string][]string{}}
	for _, f := range files {
		l.files[f.Path] = f
		folder := path.Dir(f.Path)
		l.folders[folder] = append(l.folders[folder], f.Path)
	}
	for _, list := range l.folders {
		slices.Sort(list)
	}
	return l
}

func (l *listing) has(folder, name string) bool {
	_, ok := l.files[path.Join(folder, name)]
	return ok
}

// homeOf is the nearest folder around graphs that has a configuration: that around a folder onnx comes first, since
// graft looks for graphs there.
func (l *listing) homeOf(folder string) string {
	around := []string{folder}
	for f := folder; f != "."; {
		f = path.Dir(f)
		around = append(around, f)
	}
	if path.Base(folder) == "onnx" {
		around[0], around[1] = around[1], around[0]
	}
	for _, f := range around {
		if l.has(f, modeldir.ConfigName) || l.has(f, modeldir.GenaiConfigName) {
			return f
		}
	}
	return around[0]
}

// models are those that the graphs of a repository make, by label.
func (l *listing) models() map[string]*model {
	found := map[string]*model{}
	add := func(m *model) {
		m.plain = m.variant == "" && (m.folder == m.home || m.folder == path.Join(m.home, "onnx"))
		old := found[m.label()]
		// Of the same graphs beside the configuration and below it, the latter; of two ways to write a name, the first.
		if old == nil || !old.plain && m.plain || old.plain && m.plain && old.folder == old.home {
			found[m.label()] = m
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(l.folders)) {
		paths, home := l.folders[folder], l.homeOf(folder)
		sets, others := map[string]map[string]string{}, []string{}
		for _, p := range paths {
			stem, ok := strings.CutSuffix(path.Base(p), graphEnd)
			if !ok {
				continue
			}
			base, variant, ok := splitName(stem)
			if !ok {
				others = append(others, p)
				continue
			}
			if sets[variant] == nil {
				sets[variant] = map[string]string{}
			}
			if _, twice := sets[variant][base]; !twice {
				sets[variant][base] = p
			}
		}
		if l.has(folder, modeldir.GenaiConfigName) && home == folder {
			graphs := map[string]string{}
			for _, p := range paths {
				if stem, ok := strings.CutSuffix(path.Base(p), graphEnd); ok {
					graphs[stem] = p
				}
			}
			if len(graphs) > 0 {
				add(&model{home: home, folder: folder, graphs: graphs, builder: true})
			}
			continue
		}
		if slices.ContainsFunc(others, func(p string) bool { return strings.HasPrefix(path.Base(p), "embed_tokens") }) {
			continue // its decoder reads embeddings
		}
		opened := false
		for _, variant := range slices.Sorted(maps.Keys(sets)) {
			if graphs := openable(sets[variant]); graphs != nil {
				opened = true
				add(&model{home: home, folder: folder, variant: variant, graphs: graphs})
			}
		}
		if !opened && len(others) == 1 && len(sets) == 0 { // the only graph there is
			stem := strings.TrimSuffix(path.Base(others[0]), graphEnd)
			add(&model{home: home, folder: folder, variant: stem, graphs: map[string]string{"model": others[0]}})
		}
	}
	return found
}

// openable are the graphs of a set that graft opens, nil where it opens none. Where a decoder is there twice, merged
// and as two files, the merged one has its weights once.
func openable(set map[string]string) map[string]string {
	pick := func(names ...string) map[string]string {
		graphs := map[string]string{}
		for _, name := range names {
			if set[name] == "" {
				return nil
			}
			graphs[name] = set[name]
		}
		return graphs
	}
	ways := [][]string{{"model"}, {"decoder_model_merged"}, {"decoder_with_past_model"}}
	if set["encoder_model"] != "" {
		ways = [][]string{{"encoder_model", "decoder_model_merged"},
			{"encoder_model", "decoder_with_past_model", "decoder_model"}}
	}
	for _, way := range ways {
		if graphs := pick(way...); graphs != nil {
			return graphs
		}
	}
	return nil
}

// choose finds the model of a variant, and without one the float32 one, or the only one that there is.
func (l *listing) choose(r Reference, page, variant string) (*model, error) {
	models := l.models()
	if len(models) == 0 {
		return nil, l.nothing(r, page)
	}
	var labels []string
	for label, m := range models {
		labels = append(labels, fmt.Sprintf("%s (%s)", label, Size(l.bytes(m))))
	}
	slices.Sort(labels)
	if variant == "" {
		for _, name := range append([]string{Float32}, "fp32") {
			if m := models[name]; m != nil {
				return m, nil
			}
		}
		if len(models) == 1 {
			for _, m := range models {
				return m, nil
			}
		}
		return nil, &diagnostic.Error{Kind: ErrChoice, Path: page,
			Found: "found no " + Float32 + " model, but " + some(labels), Needed: "one of them",
			Fix: "name it: --variant NAME"}
	}
	for _, name := range append([]string{variant}, aliases[strings.ToLower(variant)]...) {
		if m := models[strings.Trim(name, "/")]; m != nil {
			return m, nil
		}
		var like []*model
		for label, m := range models {
			if strings.EqualFold(label, name) || path.Base(label) == name {
				like = append(like, m)
			}
		}
		switch {
		case len(like) == 1:
			return like[0], nil
		case len(like) > 1:
			return nil, &diagnostic.Error{Kind: ErrChoice, Path: page,
				Found:  fmt.Sprintf("found %d variants %s: %s", len(like), name, some(labels)),
				Needed: "one", Fix: "name its folder too"}
		}
	}
	return nil, &diagnostic.Error{Kind: ErrChoice, Path: page, Found: "found no variant " + quoted(variant),
		Needed: "one of " + some(labels)}
}

// bytes is what the graphs of a model take, with their data.
func (l *listing) bytes(m *model) (n int64) {
	for _, p := range l.graphFiles(m) {
		n += l.files[p].Size
	}
	return n
}

// nothing says what a repository has in place of a model that graft opens.
func (l *listing) nothing(r Reference, page string) error {
	var graphs []string
	weights := ""
	for p := range l.files {
		switch path.Ext(p) {
		case graphEnd:
			graphs = append(graphs, p)
		case ".safetensors", ".bin", ".h5", ".msgpack", ".gguf", ".pt", ".pth":
			weights = cmp.Or(min(weights, p), p)
		}
	}
	e := &diagnostic.Error{Kind: ErrChoice, Path: page, Needed: "an export of the model"}
	switch slices.Sort(graphs); {
	case len(graphs) > 0:
		e.Found = "found graphs, but none by the names of a model that graft opens: " + some(graphs)
		e.Needed = "model.onnx, or encoder_model.onnx and its decoders"
		e.Fix = "bring the files that you want: --file PATTERN"
		return e
	case weights != "":
		e.Found = "found no .onnx file, only weights of another form (" + clipped(weights) + ")"
	default:
		e.Found = fmt.Sprintf("found no .onnx file among %d files", len(l.files))
	}
	e.Fix = fmt.Sprintf("make it: optimum-cli export onnx --model %s FOLDER (docs/models.md)", r.Repository)
	return e
}

// graphFiles are the graphs of a model, and the files beside them that are called as external data of theirs is.
func (l *listing) graphFiles(m *model) []string {
	var list []string
	for _, p := range l.folders[m.folder] {
		for _, graph := range m.graphs {
			rest, ok := strings.CutPrefix(p, graph)
			if ok && (rest == "" || !strings.HasSuffix(rest, graphEnd)) ||
				!ok && p == strings.TrimSuffix(graph, graphEnd)+".data" {
				list = append(list, p)
				break
			}
		}
	}
	return list
}

// configurations are the files beside a model that graft reads, and those by which others know the tokenizer. Without a
// tokenizer.json one can be made of the files of older tokenizers.
var (
	configurations = regexp.MustCompile(
		`^(?:config|generation_config|genai_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|target_vocab|` +
			`preprocessor_config|processor_config|modules|config_sentence_transformers|sentence_[a-z0-9-]+_config)\.json$|\.spm$`)
	tokenizers = regexp.MustCompile(`^(?:vocab|merges)\.txt$|\.model$`)
	moduleName = regexp.MustCompile(`^[0-9]+_[A-Za-z0-9]+$`)
)

// besides are the files beside the graphs: in the home, and in the folders of a sentence-transformers model's modules.
func (l *listing) besides(m *model) []string {
	list := l.configured(m.home)
	for folder := range l.folders {
		if path.Dir(folder) == m.home && moduleName.MatchString(path.Base(folder)) {
			list = append(list, l.module(folder)...)
		}
	}
	return list
}

// configured are the configurations and the tokenizer in a folder.
func (l *listing) configured(folder string) (list []string) {
	older := !l.has(folder, "tokenizer.json") && !l.has(folder, "source.spm")
	for _, p := range l.folders[folder] {
		if name := path.Base(p); configurations.MatchString(name) || older && tokenizers.MatchString(name) {
			list = append(list, p)
		}
	}
	return list
}

// module is what is needed of the folder of a module: its configuration, and of a layer after the encoder its weights.
func (l *listing) module(folder string) []string {
	list := l.configured(folder)
	if weights := path.Join(folder, "model.safetensors"); !strings.HasSuffix(folder, "_Transformer") &&
		l.has(folder, "model.safetensors") {
		list = append(list, weights)
	}
	return list
}

// matching are the files that one of the patterns is of, as huggingface_hub reads them: * and ? match across folders,
// and a pattern that ends with / is all of a folder.
func (l *listing) matching(page string, patterns []string) ([]string, error) {
	var list []string
	for _, pattern := range patterns {
		found := false
		match := glob(pattern)
		for p := range l.files {
			if match.MatchString(p) {
				found = true
				list = append(list, p)
			}
		}
		if !found {
			return nil, &diagnostic.Error{Kind: ErrChoice, Path: page,
				Found: fmt.Sprintf("found no file %s among %d", quoted(pattern), len(l.files)), Needed: "at least one"}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// glob is a pattern as Python's fnmatch reads it.
func glob(pattern string) *regexp.Regexp {
	if strings.HasSuffix(pattern, "/") {
		pattern += "*"
	}
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(pattern); {
		r, n := utf8.DecodeRuneInString(pattern[i:])
		switch r {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		case '[':
			class, length := charClass(pattern[i:])
			if n = length; n == 0 {
				class, n = `\[`, 1
			}
			b.WriteString(class)
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
		i += n
	}
	b.WriteString(`\z`)
	if r, err := regexp.Compile(b.String()); err == nil {
		return r
	}
	return regexp.MustCompile(`(?s)\A` + regexp.QuoteMeta(pattern) + `\z`) // a class that is none
}

// charClass is the class that a pattern begins with, as an expression, and its length; 0 where the bracket is not
// closed.
func charClass(pattern string) (string, int) {
	at, not := 1, ""
	if strings.HasPrefix(pattern[at:], "!") {
		at, not = 2, "^"
	}
	end := at + 1 // a bracket that closes right away is one of the class
	for end < len(pattern) && pattern[end] != ']' {
		end++
	}
	if end >= len(pattern) {
		return "", 0
	}
	inside := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`, `~`,
		`\~`).Replace(pattern[at:end])
	return "[" + not + inside + "]", end + 1
}

// some are the first of a list, of which a server may have made any length.
func some(list []string) string {
	const most = 12
	var shown []string
	for i, text := range list {
		if i == most {
			shown = append(shown, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		shown = append(shown, clipped(text))
	}
	return strings.Join(shown, ", ")
}

// Size is a number of bytes as people read it.
func Size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
