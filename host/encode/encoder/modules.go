package encoder

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// modules are what a folder says of the way from hidden states to a vector, as sentence-transformers 5.1 reads it.
type modules struct {
	given   bool // there is a modules.json
	folder  string
	pooling *pooling
	after   []step // what is done to the pooled vector

	longest int  // max_seq_length; 0 where it is not said
	lower   bool // texts are made lower case first

	prompts map[string]string
	prompt  string // the name of the one that is used where none is asked for
}

// step changes a vector, or makes another one of it.
type step interface {
	apply([]float32) []float32
	width(of int) int // of the result; 0 of what is not known stays 0
}

// readModules reads modules.json and what it names.
func readModules(folder string) (*modules, error) {
	m := &modules{folder: folder, prompts: map[string]string{}}
	var list []struct{ Path, Type string }
	path := filepath.Join(folder, "modules.json")
	found, err := readJSON(path, &list)
	if err != nil {
		return nil, err
	}
	m.given = found
	for i, one := range list {
		part, err := inside(folder, path, one.Path)
		if err != nil {
			return nil, err
		}
		_, kind, own := cutLast(one.Type)
		if !own {
			return nil, m.unknown(path, one.Type)
		}
		if first := kind == "Transformer"; first != (i == 0) {
			return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("module %d is a %s", i, diagnostic.Clip(kind)),
				Needed: "a Transformer, and then what is done to its output"}
		}
		switch kind {
		case "Transformer":
			m.folder = part
			err = m.readTransformer()
		case "Pooling":
			if m.pooling != nil || len(m.after) > 0 {
				return nil, &diagnostic.Error{Path: path, Found: "a Pooling after another module than the Transformer",
					Needed: "one, right after it"}
			}
			m.pooling, err = readPooling(part)
		case "Dense":
			var d *dense
			if d, err = readDense(part); err == nil {
				m.after = append(m.after, d)
			}
		case "Normalize":
			m.after = append(m.after, normalize{})
		case "Dropout": // does nothing but in training
		default:
			return nil, m.unknown(path, one.Type)
		}
		if err != nil {
			return nil, err
		}
	}
	if found && len(list) > 0 && m.pooling == nil && len(m.after) > 0 {
		return nil, &diagnostic.Error{Path: path, Found: "no Pooling", Needed: "one after the Transformer"}
	}
	if !found {
		if err := m.readTransformer(); err != nil {
			return nil, err
		}
	}
	return m, m.readPrompts(folder)
}

// cutLast tells the name of a class of sentence-transformers from its module.
func cutLast(class string) (module, kind string, own bool) {
	at := strings.LastIndexByte(class, '.')
	if at < 0 {
		return "", class, false
	}
	return class[:at], class[at+1:], strings.HasPrefix(class, "sentence_transformers.")
}

func (m *modules) unknown(path, class string) error {
	return &diagnostic.Error{Path: path, Found: fmt.Sprintf("a module of type %q", diagnostic.Clip(class)),
		Needed: "Transformer, Pooling, Dense, Normalize or Dropout of sentence_transformers",
		Fix:    "export the model with its pooling in the graph, as an output sentence_embedding"}
}

// readTransformer reads how texts are tokenized.
func (m *modules) readTransformer() error {
	for _, kind := range []string{"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"} {
		var c struct {
			Longest *int `json:"max_seq_length"`
			Lower   bool `json:"do_lower_case"`
		}
		path := filepath.Join(m.folder, "sentence_"+kind+"_config.json")
		found, err := readJSON(path, &c)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if c.Longest != nil {
			if m.longest = *c.Longest; m.longest < 1 {
				return &diagnostic.Error{Path: path, Found: fmt.Sprintf("max_seq_length is %d", m.longest), Needed: "at least 1"}
			}
		}
		m.lower = c.Lower
		return nil
	}
	return nil
}

func (m *modules) readPrompts(folder string) error {
	var c struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	path := filepath.Join(folder, "config_sentence_transformers.json")
	if _, err := readJSON(path, &c); err != nil {
		return err
	}
	for name, text := range c.Prompts {
		m.prompts[name] = text
	}
	if c.Default != nil && *c.Default != "" {
		m.prompt = *c.Default
		if _, ok := m.prompts[m.prompt]; !ok {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("default_prompt_name is %q", diagnostic.Clip(m.prompt)),
				Needed: "one of prompts"}
		}
	}
	return nil
}
