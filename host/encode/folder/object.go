package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// object is a JSON object of a configuration file. Each key is asked for by who understands it, and close refuses what
// nobody asked for: a key that nobody knows may change every answer.
type object struct {
	path   string
	kind   string // by which unused names its keys
	within string // the keys around it, each with a point after it
	keys   map[string]json.RawMessage
	err    error // the first one
}

// asked is told of every key that is asked for, and of what its value is read into: tests make a table of all keys.
var asked = func(o *object, key string, into any) {}

// readObject reads a file that holds an object. found is false where there is no such file, and all keys are absent.
func readObject(path, kind string) (o *object, found bool, err error) {
	o = &object{path: path, kind: kind}
	found, err = readJSON(path, "an object", &o.keys)
	if err == nil && found && o.keys == nil { // null
		err = &diagnostic.Error{Path: path, Found: "null", Needed: "an object"}
	}
	return o, found, err
}

// readJSON reads a configuration. found is false where there is no such file.
func readJSON(path, needed string, into any) (found bool, err error) {
	data, err := storage.ReadRegular(path, limit.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !utf8.Valid(data) {
		return false, &diagnostic.Error{Path: path, Found: "bytes that are no UTF-8", Needed: "a text of JSON"}
	}
	if err := json.Unmarshal(data, into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return false, &diagnostic.Error{Path: path, Found: "JSON of another kind, " + kind.Value, Needed: needed, Cause: err}
		}
		return false, &diagnostic.Error{Path: path, Found: "no JSON: " + err.Error(), Needed: needed,
			Fix: "copy the file from where the model comes from", Cause: err}
	}
	return true, nil
}

// wrong notes the first error about a key.
func (o *object) wrong(key, needed, fix string) {
	if o.err == nil {
		o.err = &diagnostic.Error{Path: o.path, Needed: needed, Fix: fix,
			Found: fmt.Sprintf("%s%s is %s", o.within, key, diagnostic.Clip(string(o.keys[key])))}
	}
}

// take is the value of a key, which is known from now on; ok is false where it is absent or null.
func (o *object) take(key string) (json.RawMessage, bool) {
	value, ok := o.keys[key]
	if !ok || string(value) == "null" {
		delete(o.keys, key)
		return nil, false
	}
	return value, true
}

// value reads a key into what is of its type. It is false where the key is absent or null, and where it is of another
// type, which is an error.
func (o *object) value(key, needed string, into any) bool {
	asked(o, key, into)
	data, ok := o.take(key)
	if !ok {
		return false
	}
	if json.Unmarshal(data, into) != nil || hollow(data, reflect.TypeOf(into).Elem()) {
		o.wrong(key, needed, "")
		ok = false
	}
	delete(o.keys, key)
	return ok
}

// hollow is whether a list or an object has a null in place of a value of a type: it would become "" or 0.
func hollow(data json.RawMessage, of reflect.Type) bool {
	if kind := of.Kind(); kind != reflect.Slice && kind != reflect.Map || of == reflect.TypeFor[json.RawMessage]() {
		return false
	}
	var parts []json.RawMessage
	if of.Kind() == reflect.Slice {
		if json.Unmarshal(data, &parts) != nil {
			return true
		}
	} else {
		var named map[string]json.RawMessage
		if json.Unmarshal(data, &named) != nil {
			return true
		}
		parts = slices.Collect(maps.Values(named))
	}
	of = of.Elem()
	tells := of.Kind() == reflect.Pointer || of.Kind() == reflect.Interface || of == reflect.TypeFor[json.RawMessage]()
	return slices.ContainsFunc(parts, func(p json.RawMessage) bool {
		return string(p) == "null" && !tells || hollow(p, of)
	})
}

func (o *object) bool(key string, absent bool) bool {
	var b bool
	if !o.value(key, "true or false", &b) {
		return absent
	}
	return b
}

func (o *object) text(key string) (s string, ok bool) {
	ok = o.value(key, "a string", &s)
	return s, ok
}

// choice is one of several words, the first where it is absent.
func (o *object) choice(key string, words ...string) string {
	s, ok := o.text(key)
	switch {
	case !ok:
		return words[0]
	case !slices.Contains(words, s) && o.err == nil:
		o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("%s%s is %q", o.within, key, diagnostic.Clip(s)),
			Needed: strings.Join(words, " or ")}
	}
	return s
}

// version is a version's number; zero where it is absent.
func (o *object) version(key string) (v Version) {
	s, ok := o.text(key)
	if v = parseVersion(s); ok && v == (Version{}) && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path, Found: fmt.Sprintf("%s%s is %q", o.within, key, diagnostic.Clip(s)),
			Needed: "a version: numbers with points between"}
	}
	return v
}

// number is one of at least least; 0 where it is absent.
func (o *object) number(key string, least, most int) int {
	asked(o, key, new(int))
	data, ok := o.take(key)
	if !ok {
		return 0
	}
	needed := fmt.Sprintf("a number from %d to %d", least, most)
	var f float64
	if json.Unmarshal(data, &f) != nil || f != math.Trunc(f) || f < float64(least) || f > float64(most) {
		o.wrong(key, needed, "")
	}
	delete(o.keys, key)
	return int(max(min(f, float64(most)), float64(least)))
}

// inner is an object in it; ok is false where it is absent.
func (o *object) inner(key string) (in *object, ok bool) {
	in = &object{path: o.path, kind: o.kind + " " + key, within: o.within + key + "."}
	ok = o.value(key, "an object", &in.keys)
	return in, ok
}

// refuse is an error where a key is there that changes answers and is not implemented. What passes is a value, as JSON,
// that changes nothing.
func (o *object) refuse(key, passes, fix string) {
	asked(o, key, passes)
	data, ok := o.take(key)
	if !ok {
		return
	}
	if compact(data) != passes {
		o.wrong(key, "no "+key+", which graft does not implement", fix)
	}
	delete(o.keys, key)
}

// compact is JSON without blanks.
func compact(data json.RawMessage) string {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// close is the first error of the file: one of those met, else a key that nobody asked for and that is not known to
// change nothing.
func (o *object) close() error {
	if o.err != nil {
		return o.err
	}
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		if _, known := unused[o.kind][key]; known {
			continue
		}
		return &diagnostic.Error{Path: o.path,
			Found:  "the key " + diagnostic.Clip(o.within+key) + ", which graft does not know",
			Needed: "keys of which it is known what they change",
			Fix:    "take the key out if it changes no answer, and report it"}
	}
	return nil
}

// inside is the path of a part of a folder that a configuration names. It does not lead out of the folder.
func inside(folder, file, name string) (string, error) {
	if strings.Trim(name, "/") == "" && !strings.HasPrefix(name, "/") || name == "." {
		return folder, nil
	}
	if !filepath.IsLocal(name) {
		return "", &diagnostic.Error{Path: file, Found: fmt.Sprintf("the path %q", diagnostic.Clip(name)),
			Needed: "a folder below " + folder}
	}
	return filepath.Join(folder, name), nil
}
