package encoder

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// ParseQuery reads a line of JSON: {"query": "...", "documents": ["...", ...]}. Other keys are passed over.
func ParseQuery(line string) (query string, documents []string, err error) {
	const needed = `{"query": "...", "documents": ["...", ...]}`
	refuse := func(found string) error { return &diagnostic.Error{Found: found, Needed: needed} }
	if !utf8.ValidString(line) { // which encoding/json would change silently
		return "", nil, refuse("a line that is not UTF-8")
	}
	var o struct {
		Query     *string   `json:"query"`
		Documents []*string `json:"documents"`
	}
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return "", nil, refuse("a line that is no JSON (" + err.Error() + ")")
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return "", nil, refuse(kind.Field + " is of another kind (" + kind.Value + ")")
		}
		return "", nil, refuse("a line of another kind")
	}
	switch {
	case o.Query == nil:
		return "", nil, refuse("no query")
	case len(o.Documents) == 0:
		return "", nil, refuse("no documents")
	}
	for _, d := range o.Documents {
		if d == nil {
			return "", nil, refuse("a document that is null")
		}
		documents = append(documents, *d)
	}
	return *o.Query, documents, nil
}

// ParseTSV reads a line of a query and documents with tabs between.
func ParseTSV(line string) (query string, documents []string, err error) {
	parts := strings.Split(line, "\t")
	if len(parts) < 2 {
		return "", nil, &diagnostic.Error{Found: "a line without a tab", Needed: "a query and documents with tabs between"}
	}
	return parts[0], parts[1:], nil
}
