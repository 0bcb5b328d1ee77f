package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/search"
)

// Origin is what an output file was made from. It lies beside the output, so that a run that continues
// the file does so with the same model, input and options.
type Origin struct {
	SchemaVersion int               `json:"schema_version"`
	Model         map[string]string `json:"model"`           // digests of the folder's files, by name
	Input         *Prefix           `json:"input,omitempty"` // nil for what can be read only once
	Options       map[string]string `json:"options"`         // of the search, and others that shape the output
}

// Prefix is the content of a file, which may grow.
type Prefix struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// originSuffix is what an output's name gets for that of its origin.
const originSuffix = ".graft.json"

// maxOriginBytes bounds an origin; a file of the model takes some 100 bytes.
const maxOriginBytes = 16 << 20

// OriginOf describes a run of a model folder over the file at input, "-" for standard input. more are
// options beside those of the search.
func OriginOf(folder, input string, o search.Options, more map[string]string) (*Origin, error) {
	origin := &Origin{SchemaVersion: 1, Model: map[string]string{}, Options: maps.Clone(more)}
	if origin.Options == nil {
		origin.Options = map[string]string{}
	}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if strings.HasPrefix(v.Type().Field(i).Name, "Draft") {
			continue // what is drafted changes nothing
		}
		origin.Options[snakeCase(v.Type().Field(i).Name)] = fmt.Sprintf("%+v", v.Field(i).Interface())
	}
	for _, in := range []string{folder, filepath.Join(folder, "onnx")} {
		entries, err := os.ReadDir(in)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !ofModel(e.Name()) {
				continue
			}
			path := filepath.Join(in, e.Name())
			digest, err := digestOf(path)
			if err != nil {
				return nil, err
			}
			if name, err := filepath.Rel(folder, path); err == nil && digest != "" {
				origin.Model[name] = digest
			}
		}
	}
	if info, err := os.Stat(input); input != "-" && err == nil && info.Mode().IsRegular() {
		sum, err := prefixSum(input, info.Size())
		if err != nil {
			return nil, err
		}
		origin.Input = &Prefix{info.Size(), sum}
	}
	return origin, nil
}

// ofModel reports whether a file of a model folder belongs to the model, by its name.
func ofModel(name string) bool {
	if strings.HasSuffix(name, originSuffix) {
		return false
	}
	switch filepath.Ext(name) {
	case ".onnx", ".onnx_data", ".data", ".json", ".model", ".spm":
		return true
	}
	return name == "merges.txt" || name == "vocab.txt"
}

// sampled is what is read of a large file, at its beginning, middle and end: weights take gigabytes.
const sampled = 1 << 20

// digestOf tells files apart by size and content; of a large file by parts of it. "" for what is no file.
func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	h, size := sha256.New(), info.Size()
	fmt.Fprintln(h, size)
	parts := []int64{0}
	if size > 3*sampled {
		parts = []int64{0, size/2 - sampled/2, size - sampled}
	}
	for _, at := range parts {
		length := size
		if len(parts) > 1 {
			length = sampled
		}
		if _, err := io.Copy(h, io.NewSectionReader(f, at, length)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// prefixSum is the SHA-256 of the first bytes of a file, "" when it has fewer.
func prefixSum(path string, bytes int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, bytes); errors.Is(err, io.EOF) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// snakeCase writes a Go name as Hugging Face does: MaxNewTokens, max_new_tokens.
func snakeCase(name string) string {
	var out []rune
	runes := []rune(name)
	for i, r := range runes {
		start := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if start {
			out = append(out, '_')
		}
		out = append(out, unicode.ToLower(r))
	}
	return string(out)
}

// Write puts the origin beside a new output, whole or not at all.
func (o *Origin) Write(output string) error {
	data, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	path := output + originSuffix
	if err := storage.Write(path, append(data, '\n'), storage.Shared); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Continues refuses to continue an output that was made from something else. input is the path of the
// input now, which may have grown.
func (o *Origin) Continues(output, input string) error {
	path := output + originSuffix
	data, err := storage.ReadRegular(path, maxOriginBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: found no %s beside it, which says what it was made from and is needed to continue it", output,
			filepath.Base(path))
	}
	if err != nil {
		return err
	}
	var before Origin
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("%s: cannot be read: %w", path, err)
	}
	if before.SchemaVersion != o.SchemaVersion {
		return fmt.Errorf("%s: found schema_version %d, need %d", path, before.SchemaVersion, o.SchemaVersion)
	}
	refuse := func(what string) error {
		return fmt.Errorf("%s was made %s; --resume continues with the same model, input and options only", output, what)
	}
	if name := differs(before.Model, o.Model); name != "" {
		return refuse("with another model: " + name + " is not the same")
	}
	if name := differs(before.Options, o.Options); name != "" {
		return refuse(fmt.Sprintf("with other options: %s was %s and is %s", name, shown(before.Options[name]),
			shown(o.Options[name])))
	}
	if (before.Input == nil) != (o.Input == nil) {
		return refuse("from another input")
	}
	if before.Input == nil {
		return nil
	}
	sum, err := prefixSum(input, before.Input.Bytes)
	if err == nil && sum != before.Input.SHA256 {
		err = refuse("from another input")
	}
	return err
}

// differs is the first name whose values are not equal in both.
func differs(a, b map[string]string) string {
	names := slices.Collect(maps.Keys(a))
	names = slices.AppendSeq(names, maps.Keys(b))
	slices.Sort(names)
	for _, name := range names {
		before, was := a[name]
		if now, is := b[name]; was != is || before != now {
			return name
		}
	}
	return ""
}

func shown(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}
