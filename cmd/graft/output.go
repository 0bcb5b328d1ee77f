package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// schemaVersion begins every JSON object that commands print, but those of host, which have a version of their own.
const schemaVersion = `"schema_version": 2`

// output is where data goes. It remembers that it could not all be written.
type output struct {
	to   io.Writer
	talk *talk // whose progress may be on the same terminal
	err  error // the first
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.talk.writeTo(o.to, p)
	if err != nil && o.err == nil {
		o.err = &diagnostic.Error{Found: "the output could not be written: " + diagnostic.Cause(err), Cause: err}
	}
	return n, err
}

// terminal reports whether a person sees the output as it is written.
func (o *output) terminal() bool {
	f, ok := o.to.(*os.File)
	return ok && isTerminal(f)
}

// print writes data: one JSON object, or what write says.
func (c *cli) print(data any, write func(w *page)) error {
	if !c.json {
		var w page
		write(&w)
		_, err := c.out.Write(w.text.Bytes())
		return err
	}
	var object bytes.Buffer
	e := json.NewEncoder(&object)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(data); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	text := object.Bytes()
	if !bytes.HasPrefix(text, []byte("{\n  \"schema_version\": ")) {
		text = append([]byte("{\n  "+schemaVersion+","), text[len("{"):]...)
	}
	_, err := c.out.Write(diagnostic.PrintableJSON(text))
	return err
}

// page is text for people. What is put into its lines may come from a model or a plugin, and is escaped here, for
// all commands.
type page struct{ text bytes.Buffer }

func (w *page) printf(format string, args ...any) {
	if false {
		_ = fmt.Sprintf(format, args...) // for go vet, which checks format and arguments then
	}
	fmt.Fprintf(&w.text, format, printable(args)...)
}

func (w *page) println(args ...any) { fmt.Fprintln(&w.text, printable(args)...) }

// table writes rows with columns aligned, and no blanks at the ends of lines.
func (w *page) table(rows [][]string) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, diagnostic.Printable(cell))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(&w.text, strings.TrimRight(line, " \n"))
	}
}

// printable are arguments of a line: numbers as they are, and texts without what could disturb a terminal. Errors
// may have several lines.
func printable(args []any) []any {
	safe := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case string:
			safe[i] = diagnostic.Printable(v)
		case error:
			safe[i] = diagnostic.PrintableLines(v.Error())
		case fmt.Stringer:
			safe[i] = diagnostic.Printable(v.String())
		default:
			safe[i] = a
			if k := reflect.ValueOf(a).Kind(); k == reflect.String || k > reflect.Complex128 || k == reflect.Invalid {
				safe[i] = diagnostic.Printable(fmt.Sprint(a))
			}
		}
	}
	return safe
}

// newFile refuses to write a file in place of another.
func newFile(flag, path string) error {
	if info, err := os.Lstat(path); err != nil || info.IsDir() {
		return nil // a folder is refused where the file is made
	}
	return &diagnostic.Error{Path: path, Found: "is there already",
		Needed: "a name of " + flag + " that is not there yet, in a folder that is", Fix: "remove it, or name another file"}
}

// say prints talk for people.
func (c *cli) say(format string, args ...any) {
	if !c.quiet {
		c.warn(format, args...)
	}
}

// warn prints talk that --quiet does not silence.
func (c *cli) warn(format string, args ...any) {
	if false {
		_ = fmt.Sprintf(format, args...)
	}
	fmt.Fprintf(c.talk, format+"\n", printable(args)...)
}

// printed passes on what native code prints, line by line, indented: none passes for a line of the command.
type printed struct {
	to   io.Writer
	line []byte
}

func (p *printed) Write(b []byte) (int, error) {
	const longest = 1 << 12
	p.line = append(p.line, b...)
	for {
		end := bytes.IndexByte(p.line, '\n')
		if end < 0 && len(p.line) < longest {
			return len(b), nil
		}
		if end < 0 {
			end = len(p.line) - 1
		}
		fmt.Fprintf(p.to, "  %s\n", diagnostic.Printable(string(bytes.TrimRight(p.line[:end+1], "\n"))))
		p.line = p.line[end+1:]
	}
}
