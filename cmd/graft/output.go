package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// schemaVersion is the version of every JSON object that commands print.
const schemaVersion = 2

// print writes data: one JSON object, or what text writes.
func (c *cli) print(data any, text func(w io.Writer)) error {
	if !c.json {
		text(c.out)
		return nil
	}
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(data); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// table writes rows with columns aligned, and no blanks at the ends of lines.
func table(w io.Writer, rows [][]string) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// printable is a name out of a file as a terminal may show it: control characters escaped.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strings.Trim(strconv.QuoteToGraphic(s), `"`)
}
