package folder

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
)

// readers read the modules that may come after the Transformer, by the name of their class.
var readers = map[string]func(folder string, in *Folder) (Module, error){
	"Dense":                 readDense,
	"Dropout":               readDropout,
	"LayerNorm":             readLayerNorm,
	"LogitScore":            readLogitScore,
	"MultiVectorMask":       readMask,
	"Normalize":             readNormalize,
	"Pooling":               readPooling,
	"SparseAutoEncoder":     readAutoEncoder,
	"SparseStaticEmbedding": readSparseStatic,
	"SpladePooling":         readSplade,
}

// packages are where sentence-transformers has had its modules. Since 5.4 each stands in a file of its own, whose name
// comes after these.
var packages = []string{"sentence_transformers.models", "sentence_transformers.base.modules",
	"sentence_transformers.sentence_transformer.modules", "sentence_transformers.sparse_encoder.models",
	"sentence_transformers.sparse_encoder.modules", "sentence_transformers.multi_vector_encoder.modules",
	"sentence_transformers.cross_encoder.modules", "pylate.models"}

// className is the name of a module's class; ok is false for one of another package.
func className(class string) (name string, ok bool) {
	at := strings.LastIndexByte(class, '.')
	if at < 0 {
		return class, false
	}
	in, name := class[:at], class[at+1:]
	for _, p := range packages {
		rest, ok := strings.CutPrefix(in, p)
		if ok && (rest == "" || strings.LastIndexByte(rest, '.') == 0 &&
			strings.EqualFold(strings.ReplaceAll(rest[1:], "_", ""), name)) {
			return name, true
		}
	}
	return name, false
}

// readModules reads modules.json and what it names.
func (f *Folder) readModules(folder string) error {
	path := filepath.Join(folder, "modules.json")
	var list []map[string]json.RawMessage
	found, err := readJSON(path, "a list of modules", &list)
	if err != nil {
		return err
	}
	if f.Given = found; !found {
		return f.readTransformer()
	}
	for i, keys := range list {
		o := &object{path: path, kind: "modules.json", keys: keys}
		class, ok := o.text("type")
		below, given := o.text("path")
		o.refuse("kwargs", "[]", "")
		if err := o.close(); err != nil {
			return err
		}
		if !ok || !given {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("module %d without a type or a path", i), Needed: "both"}
		}
		part, err := inside(folder, path, below)
		if err != nil {
			return err
		}
		if err := f.add(part, path, class, i == 0); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return &diagnostic.Error{Path: path, Found: "no modules",
			Needed: "a Transformer, and then what is done to its output"}
	}
	if f.Late != nil {
		f.Late.finish(f)
	}
	return nil
}

// add reads a module that comes after those before. The first one makes features of texts.
func (f *Folder) add(part, path, class string, first bool) error {
	kind, own := className(class)
	if f.Routes != nil {
		for _, r := range f.Routes {
			if err := r.add(part, path, class, false); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	switch {
	case own && kind == "Router":
		return f.route(part, !first)
	case first && own && (kind == "Transformer" || kind == "MLMTransformer"):
		f.Path, f.logits = part, kind == "MLMTransformer"
		return f.readTransformer()
	case first && own && kind == "StaticEmbedding":
		f.Path = part
		f.Input, err = readStatic(part, f)
		return err
	case first && own && kind == "SparseStaticEmbedding":
		f.Path = part
		f.Input, err = readSparseStatic(part, f)
		return err
	case first:
		return &diagnostic.Error{Path: path, Found: fmt.Sprintf("a first module of type %q", diagnostic.Clip(class)),
			Needed: "a Transformer of sentence_transformers, and then what is done to its output"}
	case !own || readers[kind] == nil:
		if diagnostic.Clip(class) != class {
			class = class[strings.LastIndexByte(class, '.')+1:]
		}
		if f.Unfit == nil {
			f.Unfit = &diagnostic.Error{Path: path, Found: fmt.Sprintf("a module of type %q", diagnostic.Clip(class)),
				Needed: "after the Transformer of sentence_transformers one of " +
					strings.Join(slices.Sorted(maps.Keys(readers)), ", "),
				Fix: "export the model with its pooling in the graph, as an output sentence_embedding"}
		}
		return nil
	case f.Late != nil && kind != "Dense":
		return nil // PyLate leaves it out
	}
	m, err := readers[kind](part, f)
	if m != nil {
		f.Modules = append(f.Modules, m)
	}
	return err
}

// Pools is whether a module makes one vector of the hidden states.
func (f *Folder) Pools() bool { return f.Pooling() != nil }

// Pooling is the last one of the modules; nil where there is none.
func (f *Folder) Pooling() *Pooling {
	for _, m := range slices.Backward(f.Modules) {
		if p, ok := m.(*Pooling); ok {
			return p
		}
	}
	return nil
}

// readTransformer reads how texts are tokenized.
func (f *Folder) readTransformer() error {
	for _, kind := range []string{"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"} {
		path := filepath.Join(f.Path, "sentence_"+kind+"_config.json")
		o, found, err := readObject(path, "sentence_bert_config.json")
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		f.MaxTokens = o.number("max_seq_length", 1, limit.Tokens)
		f.lower = o.bool("do_lower_case", false)
		f.readModality(o)
		return o.close()
	}
	return nil
}

// readModality reads what sentence-transformers writes since 5.4: which of a model's outputs are taken.
func (f *Folder) readModality(o *object) {
	const another = "export a folder whose Transformer gives hidden states or logits of a text"
	task, ok := o.text("transformer_task")
	if !ok && f.logits {
		task = "fill-mask"
	}
	outputs, known := map[string][2]string{"": {"last_hidden_state", "token_embeddings"},
		"feature-extraction":      {"last_hidden_state", "token_embeddings"},
		"sequence-classification": {"logits", "scores"}, "text-generation": {"logits", "causal_logits"},
		"fill-mask": {"logits", "token_embeddings"}}[task]
	if ok && !known && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("transformer_task is %q", diagnostic.Clip(task)),
			Needed: "feature-extraction, fill-mask, sequence-classification or text-generation"}
	}
	f.Causal, f.logits = task == "text-generation", task == "fill-mask"
	text := fmt.Sprintf(`"text":{"method":"forward","method_output_name":"%s"}}`, outputs[0])
	message := fmt.Sprintf(`{"message":{"format":"flat","method":"forward","method_output_name":"%s"},`, outputs[0])
	if task != "" && task != "feature-extraction" && compact(o.keys["modality_config"]) == message+text {
		f.Chat = &Chat{Variables: map[string]any{}}
		text = message + text
	} else {
		text = "{" + text
	}
	o.refuse("modality_config", text, another)
	o.refuse("module_output_name", `"`+outputs[1]+`"`, another)
	f.readExpansion(o)
	if n := o.number("query_length", 1, limit.Tokens); n > 0 {
		f.QueryTokens = n
	}
	if n := o.number("document_length", 1, limit.Tokens); n > 0 {
		f.DocumentTokens = n
	}
	for _, key := range []string{"model_args", "model_kwargs",
		"config_args", "config_kwargs", "tokenizer_args", "processor_kwargs", "tokenizer_name_or_path"} {
		o.refuse(key, "{}", "")
	}
	if in, ok := o.inner("processing_kwargs"); ok {
		if text, ok := in.inner("text"); ok {
			if n := text.number("max_length", 1, limit.Tokens); n > 0 {
				f.MaxTokens, f.fixed = n, true
			}
			text.refuse("logits_to_keep", "1", "")
			text.refuse("truncation", "true", "")
			text.refuse("padding", "true", "")
			if err := text.close(); err != nil && o.err == nil {
				o.err = err
			}
		}
		in.refuse("common", "{}", "")
		f.readConversation(in)
		if err := in.close(); err != nil && o.err == nil {
			o.err = err
		}
	}
}
