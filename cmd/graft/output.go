package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// schemaVersion is the version of every JSON object that commands print.
const schemaVersion = 1

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

// table writes rows with columns aligned.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
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
}
