package encoder

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opgraft/graft/internal/must"
)

func TestParseLines(t *testing.T) {
	const needed = `, needed {"query": "...", "documents": ["...", ...]}`
	for _, c := range []struct {
		line, query string
		documents   []string
		err         string
	}{
		{`{"query": "q", "documents": ["a", ""]}`, "q", []string{"a", ""}, ""},
		{`{"id": 7, "documents": ["\u00e9"], "query": ""}`, "", []string{"\u00e9"}, ""},
		{`{"query": "q"}`, "", nil, "no documents" + needed},
		{`{"query": "q", "documents": []}`, "", nil, "no documents" + needed},
		{`{"documents": ["a"]}`, "", nil, "no query" + needed},
		{`{"query": null, "documents": ["a"]}`, "", nil, "no query" + needed},
		{`{"query": "q", "documents": ["a", null]}`, "", nil, "a document that is null" + needed},
		{`{"query": 1, "documents": ["a"]}`, "", nil, "query is of another kind (number)" + needed},
		{`{"query": "q", "documents": "a"}`, "", nil, "documents is of another kind (string)" + needed},
		{`["q", "a"]`, "", nil, "a line of another kind" + needed},
		{"", "", nil, "a line that is no JSON (unexpected end of JSON input)" + needed},
		{`{"query": "q", "documents": ["a"]} x`, "", nil,
			"a line that is no JSON (invalid character 'x' after top-level value)" + needed},
		{"{\"query\": \"\xff\", \"documents\": [\"a\"]}", "", nil, "a line that is not UTF-8" + needed},
	} {
		query, documents, err := ParseQuery(c.line)
		if query != c.query || !slices.Equal(documents, c.documents) || (err == nil) != (c.err == "") ||
			err != nil && err.Error() != c.err {
			t.Errorf("%s: %q, %q, %v; want %q, %q, %s", c.line, query, documents, err, c.query, c.documents, c.err)
		}
	}
	if query, documents, err := ParseTSV("q\ta\t\tb"); query != "q" || !slices.Equal(documents, []string{"a", "", "b"}) ||
		err != nil {
		t.Errorf("TSV: %q, %q, %v", query, documents, err)
	}
	if _, _, err := ParseTSV("q"); err == nil ||
		err.Error() != "a line without a tab, needed a query and documents with tabs between" {
		t.Errorf("no tab: %v", err)
	}
}

// FuzzParseQuery: no line makes the parser panic, and what it gives is text.
func FuzzParseQuery(f *testing.F) {
	for _, line := range []string{`{"query": "q", "documents": ["a", "b"]}`, `{"query": 1}`, `[]`,
		`{"query": "\ud800", "documents": ["\u0000"]}`, strings.Repeat("[", 20000)} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		must.CostLittle(t, len(line), func() {
			query, documents, err := ParseQuery(line)
			if err == nil && (len(documents) == 0 || !utf8.ValidString(query) ||
				slices.ContainsFunc(documents, func(d string) bool { return !utf8.ValidString(d) })) {
				t.Errorf("%q: %q, %q", line, query, documents)
			}
			if err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		})
	})
}

// TestNPY: rows without a vector are NaN, also before the width is known; the head says how many rows there are.
func TestNPY(t *testing.T) {
	for _, c := range []struct {
		rows  [][]float32
		width int
		shape string
		want  []float32
	}{
		{nil, 3, "(0, 3)", nil},
		{[][]float32{{1, 2}, nil, {3, 4}}, 0, "(3, 2)", []float32{1, 2, 0, 0, 3, 4}},
		{[][]float32{nil, nil, {3, 4}}, 0, "(3, 2)", []float32{0, 0, 0, 0, 3, 4}},
		{[][]float32{nil}, 2, "(1, 2)", []float32{0, 0}},
		{[][]float32{nil, nil}, 0, "(2, 0)", nil},
	} {
		path := filepath.Join(t.TempDir(), "a.npy")
		f := must.Value(os.Create(path))(t)
		n := must.Value(NewNPY(f, c.width))(t)
		for _, row := range c.rows {
			must.Succeed(t, n.Write(row))
		}
		must.Succeed(t, n.Close())
		f.Close()
		data := must.Value(os.ReadFile(path))(t)
		head := "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': " + c.shape + ", }"
		if !bytes.HasPrefix(data, []byte(head)) || data[npyHeader-1] != '\n' || len(data) != npyHeader+4*len(c.want) {
			t.Fatalf("%v: %q", c.rows, data)
		}
		got, err := floatsAt(data[npyHeader:])
		for i := range got {
			if row := c.rows[i/max(len(got)/len(c.rows), 1)]; row == nil != math.IsNaN(float64(got[i])) ||
				row != nil && got[i] != c.want[i] || err != nil {
				t.Errorf("%v: found %v, want %v (%v)", c.rows, got, c.want, err)
			}
		}
	}
	n := &NPY{to: discard{}, width: 2}
	must.FailExactly(t, n.Write([]float32{1}), "a vector of 1 numbers after others of 2")
}

func floatsAt(data []byte) ([]float32, error) {
	out := make([]float32, len(data)/4)
	return out, binary.Read(bytes.NewReader(data), binary.LittleEndian, out)
}

type discard struct{}

func (discard) Write(p []byte) (int, error)    { return len(p), nil }
func (discard) Seek(int64, int) (int64, error) { return 0, nil }
