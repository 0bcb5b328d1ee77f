// Package report writes the result of a comparison for people who were not there: one HTML file that works without a
// network, without scripts and without other files, with the raw data in it. Charts are rendered as SVG when it is
// written.
package report

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// MaxBytes is what a report stays below, whatever it is of: lists are cut, and what is left out is said.
const MaxBytes = 2 << 20

// Options say of a result what it does not say of itself.
type Options struct {
	Command string // that made it; "" where that is not known
	Version string // of graft
}

//go:embed page.html page.css
var files embed.FS

var pageTemplate = template.Must(template.New("page.html").ParseFS(files, "page.html"))

// page is a report as the template takes it.
type page struct {
	Title    string // the model
	Verdict  string // the result in a sentence
	State    string // "good", "bad" or "even"
	Answers  string // what of the answers
	Right    bool   // whether they are equal
	Lead     []string
	Sections []section
	Foot     string

	Style    template.CSS
	Data     template.URL // of the raw data; "" where it is too large
	DataName string
	DataSize string
}

// section is a part of a report under a heading.
type section struct {
	ID, Title string
	Text      []string
	Legend    []key
	Charts    []chart
	Tables    []table
	Fold      string // what a click opens; "" for a section that is open
}

// key says which colour stands for what.
type key struct {
	Class, Text string
}

// chart is a picture with a caption.
type chart struct {
	Caption string
	SVG     template.HTML
	Wide    bool
}

// table is what it says. More is what it leaves out.
type table struct {
	Head []head
	Rows [][]cell
	More string
}

type head struct {
	Text    string
	Numeric bool
}

// cell is a text, or a number of the result.
type cell struct {
	Text   string
	Number *number
	More   []number // beside Number, with texts between
	Class  string
	Code   bool
}

// number is one of the result's. At is its place there, a JSON pointer; the text shows the value times the scale.
type number struct {
	Text, Before, After string
	Value, At, Scale    string
}

// fewRuns is what a section of speed-ups says of short comparisons.
const fewRuns = "These are few runs, and more of them may say something else: --rounds asks for more."

// timesSection is that of distributions, without its charts.
func timesSection() *section {
	return &section{ID: "times", Title: "Times of runs",
		Text: []string{"A dot is a timed run; the box holds the middle half of them, and its line is the median. No run " +
			"is left out of a median."}}
}

// legend is the colour of each side, and of A where it has a name.
func legend(a string, sides []string) []key {
	var keys []key
	if a != "" {
		keys = append(keys, key{class(-1), a})
	}
	for i, name := range sides {
		keys = append(keys, key{class(i), name})
	}
	return keys
}

// named is what a side is called in tables; A is -1.
func named(side int, name string) string {
	if side < 0 {
		return "a: " + name
	}
	return name
}

// render writes a page of the sections that there are, with its data.
func render(p *page, data any, o Options, parts ...func() (*section, error)) ([]byte, error) {
	for _, part := range parts {
		one, err := part()
		if err != nil {
			return nil, fmt.Errorf("writing the report: %w", err)
		}
		if one != nil {
			p.Sections = append(p.Sections, *one)
		}
	}
	css, err := files.ReadFile("page.css")
	if err != nil {
		return nil, err
	}
	p.Style = template.CSS(css)
	p.clean()
	if err := p.enclose(data); err != nil {
		return nil, err
	}
	if o.Version != "" {
		p.Foot = "Made by graft " + o.Version + ". "
	}
	p.Foot += "Times are those of this machine; a line of a chart is a 95 % interval, and a difference counts where " +
		"the U-test finds it and the interval leaves out 1."
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	if out.Len() >= MaxBytes {
		return nil, fmt.Errorf("the report takes %d bytes, needed are less than %d; this is a bug", out.Len(), MaxBytes)
	}
	return out.Bytes(), nil
}

// clean takes what could disturb a reader out of texts, which may come from a model or a plugin.
func (p *page) clean() {
	each := func(list ...*string) {
		for _, s := range list {
			*s = diagnostic.Printable(*s)
		}
	}
	each(&p.Title, &p.Verdict, &p.Answers)
	for i := range p.Lead {
		each(&p.Lead[i])
	}
	for i := range p.Sections {
		s := &p.Sections[i]
		for k := range s.Text {
			each(&s.Text[k])
		}
		for k := range s.Legend {
			each(&s.Legend[k].Text)
		}
		for k := range s.Charts {
			each(&s.Charts[k].Caption)
		}
		for k := range s.Tables {
			t := &s.Tables[k]
			for h := range t.Head {
				each(&t.Head[h].Text)
			}
			for _, row := range t.Rows {
				for c := range row {
					each(&row[c].Text)
					if n := row[c].Number; n != nil {
						each(&n.Before, &n.After)
					}
				}
			}
		}
	}
}

// Room for the data: as they are, then compressed.
const (
	maxPlain  = 512 << 10
	maxPacked = 640 << 10
	maxText   = 8 << 20 // that is compressed at all
)

// enclose puts the raw data behind a link.
func (p *page) enclose(data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	name := strings.TrimSuffix(p.Title, filepath.Ext(p.Title)) + ".ab.json"
	text = diagnostic.PrintableJSON(text)
	p.DataSize = size(len(text))
	if len(text) <= maxPlain {
		p.Data, p.DataName = template.URL("data:application/json;base64,"+base64.StdEncoding.EncodeToString(text)), name
		return nil
	}
	if len(text) > maxText {
		return nil
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if packed.Len() <= maxPacked {
		p.Data, p.DataName = template.URL("data:application/gzip;base64,"+base64.StdEncoding.EncodeToString(packed.Bytes())),
			name+".gz"
	}
	return nil
}

func size(n int) string {
	if n < 10_000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.0f kB", float64(n)/1e3)
}
