package folder

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// known is a key that the reader asks for, in a folder that has it or may have it.
type known struct {
	file        string // below the folder
	within, key string
	into        any // what it is read into; a string is the only value, as JSON, that is not refused
}

// savedFolders are the folders of models/encoders as their libraries saved them, files by name.
func savedFolders(t *testing.T) (list []map[string]string) {
	for _, kind := range []string{"folders/6*", "folders/5.1*", "vectors/sentence-transformers-6*", "vectors/pylate*",
		"pipelines/rerankers*"} {
		for _, path := range must.Value(filepath.Glob(encoders + "/" + kind + ".json"))(t) {
			var all struct {
				Cases []struct {
					Files   map[string]string
					Refused string
				}
				Blobs map[string]string
			}
			must.Succeed(t, json.Unmarshal(must.Value(os.ReadFile(path))(t), &all))
			for _, c := range all.Cases {
				if c.Refused != "" {
					continue
				}
				files := map[string]string{}
				for name, blob := range c.Files {
					text, coded := strings.CutPrefix(all.Blobs[blob], "base64:")
					if coded {
						text = string(must.Value(base64.StdEncoding.DecodeString(text))(t))
					}
					files[name] = text
				}
				list = append(list, files)
			}
		}
	}
	linear := `{"linear.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`
	list = append(list, map[string]string{"sentence_bert_config.json": `{"processing_kwargs": {"text": {}}}`})
	return append(list, map[string]string{"config.json": `{"architectures": ["HF_ColBERT"]}`, "artifact.metadata": "{}",
		"model.safetensors": string([]byte{byte(len(linear)), 0, 0, 0, 0, 0, 0, 0}) + linear + strings.Repeat("\x00", 8)})
}

// shape is which keys a folder's files have: folders alike in it ask for the same keys.
func shape(folder map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(folder)) {
		var keys map[string]json.RawMessage
		if name != "tokenizer.json" && json.Unmarshal([]byte(folder[name]), &keys) == nil {
			parts = append(parts, name, fmt.Sprint(slices.Sorted(maps.Keys(keys))))
		}
	}
	return strings.Join(append(parts, folder["modules.json"]), "\n")
}

// write writes a folder's files in place of those that are there.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	must.Succeed(t, os.RemoveAll(dir))
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// with is a file's text with another value of a key: in modules.json that of the last module.
func with(t *testing.T, text, within, key string, value json.RawMessage) string {
	t.Helper()
	var root any = map[string]any{}
	if text != "" {
		must.Succeed(t, json.Unmarshal([]byte(text), &root))
	}
	at, ok := root.(map[string]any)
	if list, several := root.([]any); several {
		at, ok = list[len(list)-1].(map[string]any)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(within, "."), ".") {
		if name != "" && ok {
			at, ok = at[name].(map[string]any)
		}
	}
	if !ok {
		t.Fatalf("no %s in %s", within, text)
	}
	at[key] = value
	return string(must.Value(json.Marshal(root))(t))
}

// TestBadInput: a value of a wrong type of every key that the reader knows is an error that names the file and the
// key, and so is a key that it does not know; a file that is no JSON, or JSON of another kind, is one that names it.
// The keys are those that reading the saved folders asks for: one that none of them asks for fails the test.
func TestBadInput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "f")
	var keys []known
	defer func() { asked = func(*object, string, any) {} }()
	seen, files, wrong := map[string]bool{}, map[string]bool{}, 0
	shapes := map[string]bool{}
	for _, folder := range savedFolders(t) {
		if s := shape(folder); !shapes[s] {
			shapes[s] = true
		} else {
			continue
		}
		write(t, dir, folder)
		keys = nil
		asked = func(o *object, key string, into any) {
			kind := o.kind + "." + key
			if rel, err := filepath.Rel(dir, o.path); err == nil && !seen[kind] {
				seen[kind] = true
				keys = append(keys, known{rel, o.within, key, into})
			}
		}
		must.Value(Read(dir))(t)
		asked = func(*object, string, any) {}
		// put is the error of reading the folder with another text of a file.
		put := func(file, text string) error {
			path := filepath.Join(dir, file)
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
			_, err := Read(dir)
			if old, has := folder[file]; has {
				must.Succeed(t, os.WriteFile(path, []byte(old), 0o644))
			} else {
				must.Succeed(t, os.Remove(path))
			}
			return err
		}
		for _, k := range keys {
			for _, value := range []string{`{}`, `[]`, `"x"`, `""`, `7.5`, `-3`, `0`, `1e999`, `true`, `[null]`, `{"a":null}`,
				`[[1]]`, `null`} {
				err := put(k.file, with(t, folder[k.file], k.within, k.key, json.RawMessage(value)))
				named := says(err, k.file) && says(err, k.within+k.key)
				if refusedKind(k.into, value) && !named {
					t.Errorf("%s: %s%s is %s: found %v, needed an error that names both", k.file, k.within, k.key, value, err)
				}
				if named {
					wrong++
				}
			}
		}
		for _, k := range keys {
			name := k.file + "." + k.within
			if files[name] {
				continue
			}
			files[name] = true
			reject := func(what, text string, words ...string) {
				err := put(k.file, text)
				for _, word := range append(words, k.file) {
					if !says(err, word) {
						t.Errorf("%s, %s: found %v, needed an error with %q", k.file, what, err, word)
					}
				}
				wrong++
			}
			open := k.file == "config.json" || k.file == "artifact.metadata" || strings.HasSuffix(k.within, "chat_template.")
			if !open || k.within == "sentence_transformers." {
				reject("an unknown key", with(t, folder[k.file], k.within, "sways", json.RawMessage("1")),
					"the key "+k.within+"sways")
			}
			if k.within != "" {
				continue
			}
			for _, text := range []string{"", " ", "{", "x", "[", `"x"`, "1", "null", "true", "\xff{}", "{}{}", "NaN",
				"\ufeff{}"} {
				reject(fmt.Sprintf("%q", text), text)
			}
			// A file that is not there is an error that names it, or is not needed.
			must.Succeed(t, os.RemoveAll(filepath.Join(dir, k.file)))
			_, err := Read(dir)
			if text, has := folder[k.file]; has {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, k.file), []byte(text), 0o644))
			}
			if err != nil && !strings.Contains(err.Error(), dir) {
				t.Errorf("%s is missing: %v", k.file, err)
			}
		}
	}
	for kind := range seen {
		if key, ok := strings.CutPrefix(kind, "config.json."); ok && ofModel[key] == "" {
			t.Errorf("config.json: %s is read, and ofModel does not have it", key)
		}
	}
	for key := range ofModel {
		if !seen["config.json."+key] {
			t.Errorf("config.json: ofModel has %s, which is not read", key)
		}
	}
	must.Succeed(t, os.RemoveAll(dir))
	t.Logf("%d keys of %d objects, %d refusals", len(seen), len(files), wrong)
	literal := regexp.MustCompile(`\.(?:bool|text|choice|number|value|inner|refuse|version)\("([a-z_0-9]+)"`)
	for _, path := range must.Value(filepath.Glob("*.go"))(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range literal.FindAllStringSubmatch(string(must.Value(os.ReadFile(path))(t)), -1) {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(k string) bool {
				return strings.HasSuffix(k, "."+m[1])
			}) {
				t.Errorf("%s: no saved folder has the reader ask for %s", path, m[1])
			}
		}
	}
}

// says is whether an error has a word.
func says(err error, word string) bool { return err != nil && strings.Contains(err.Error(), word) }

// refusedKind is whether a value is of another type than what it is read into.
func refusedKind(into any, value string) bool {
	if value == "null" {
		return false
	}
	if passes, only := into.(string); only {
		return passes != value && value != "1e999"
	}
	fresh := reflect.New(reflect.TypeOf(into).Elem())
	return json.Unmarshal([]byte(value), fresh.Interface()) != nil
}
