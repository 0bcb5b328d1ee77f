// Package history stores results of comparisons by what they hold, and says what changed between two of them.
package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
)

// recordVersion is the version of Record's JSON.
const recordVersion = 1

// kind tells files of records from others.
const kind = "graft ab result"

// Record is a result with all that it depends on.
type Record struct {
	SchemaVersion int      `json:"schema_version"`
	Kind          string   `json:"kind"`
	Name          string   `json:"name,omitempty"` // that it was saved under; "" for none
	Time          string   `json:"time"`           // of the measurement, as RFC 3339 has it, in UTC
	Graft         string   `json:"graft"`          // version
	Model         Model    `json:"model"`
	Plugins       []Plugin `json:"plugins"` // of all sides, by name
	Measured

	id string // "" for what was not stored
}

// Model is what was compared.
type Model struct {
	Path   string `json:"path"`             // absolute
	SHA256 string `json:"sha256,omitempty"` // as the function SHA256 has it; "" where it is not known
}

// Plugin is one that a side used.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"` // of its folder's content, as content.Files.Digest has it
}

// ID is the SHA-256 of the record's canonical JSON in hexadecimal; "" for what was not stored.
func (r *Record) ID() string { return r.id }

// New is the record of a result that was just measured, of a model or folder at path and with plugins of the folders
// and the ordinary places. name may be "".
func New(result Measured, name, path, graft string, folders []string) (*Record, error) {
	if err := Named(name); err != nil {
		return nil, err
	}
	r := &Record{SchemaVersion: recordVersion, Kind: kind, Name: name, Time: result.Environment().Date, Graft: graft,
		Model: Model{Path: path}, Plugins: []Plugin{}, Measured: result}
	var err error
	if r.Model.SHA256, err = SHA256(path); err != nil {
		return nil, err
	}
	search := discovery.Find(discovery.Options{Folders: folders})
	for _, name := range result.plugins() {
		found, err := search.ByName(name)
		if err != nil {
			return nil, err
		}
		holds, err := content.ReadAny(found.Folder, nil)
		if err != nil {
			return nil, err
		}
		r.Plugins = append(r.Plugins, Plugin{name, found.Manifest.Version, holds.Digest()})
	}
	return r, nil
}

// maxName bounds a name, in bytes.
const maxName = 100

// Named refuses names of results that say nothing or could be something else; "" is none.
func Named(name string) error {
	needed := fmt.Sprintf("at most %d printable characters, no slash and no end in .json, which are of files, and not "+
		"four or more digits of an ID", maxName)
	switch {
	case len(name) > maxName,
		strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) || c == '/' || c == '\\' }),
		strings.HasSuffix(name, ".json"),
		strings.TrimSpace(name) != name, isPrefix(name):
		return &diagnostic.Error{Found: fmt.Sprintf("the name %q", name), Needed: needed, Fix: "choose another for --save"}
	}
	return nil
}

// canonical is the record as JSON in the one form whose hash is its ID: keys in order, no blanks.
func (r *Record) canonical() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return canonical(data)
}

// canonical is any JSON in that form. Numbers stand as they were written.
func canonical(data []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// id is the ID of canonical JSON.
func id(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// parse reads a record. What is none, of a newer graft or not whole is an error about path.
func parse(path string, data []byte) (*Record, error) {
	fail := func(found, fix string) error {
		return &diagnostic.Error{Path: path, Found: found, Needed: "a result that graft ab --save wrote", Fix: fix}
	}
	var head struct {
		SchemaVersion int    `json:"schema_version"`
		Kind          string `json:"kind"`
	}
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return nil, fail("no JSON object: "+err.Error(), "")
	case head.Kind != kind:
		return nil, fail("a file of another kind", "")
	case head.SchemaVersion > recordVersion:
		return nil, fail(fmt.Sprintf("a result of a newer graft (schema_version %d, this one reads %d)", head.SchemaVersion,
			recordVersion), "use that graft")
	case head.SchemaVersion < 1:
		return nil, fail(fmt.Sprintf("schema_version %d", head.SchemaVersion), "")
	}
	var whole written
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, fail(err.Error(), "")
	}
	measured, err := whole.read(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fail(err.Error(), "")
	}
	r.Measured = measured
	return r, nil
}

// written is a Measured as it stands in a file.
type written struct {
	Result      json.RawMessage `json:"result"`
	Generations json.RawMessage `json:"generations"`
}

// read reads the one result of a record.
func (p *written) read(path string) (m Measured, err error) {
	switch {
	case p.Result != nil && p.Generations != nil:
		return m, &diagnostic.Error{Path: path, Found: "a result of a model and one of generations", Needed: "one of them"}
	case p.Generations != nil:
		m.Generations, err = generations.Read(path, p.Generations)
	default:
		m.Result, err = comparison.Read(path, p.Result)
	}
	return m, err
}
