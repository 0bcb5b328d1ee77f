package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// What is said of a file.
const (
	right     = "right"
	different = "different" // an answer is not that of ONNX Runtime alone
	broken    = "broken"    // something fails with graft that does not fail without
	untried   = "untried"   // no inputs could be made for it
	refused   = "refused"   // ONNX Runtime alone does not run it
)

// row is what is known of a file.
type row struct {
	Path       string `json:"path"`
	Producer   string `json:"producer"`
	Nodes      int    `json:"nodes"`
	Recognised int    `json:"recognised"` // blocks and matches of patterns
	Default    int    `json:"replaced"`   // of them, in a default patch
	Forced     int    `json:"forced"`     // of them, where the expected gain does not matter
	Shapes     int    `json:"shapes"`     // at which it ran by default
	// why blocks are left alone under force, and why none was recognised, with how often
	Reasons    map[string]int `json:"reasons"`
	Runs       []run          `json:"runs"`
	Difference float64        `json:"max_difference"`
	Cosine     *float64       `json:"cosine,omitempty"` // the least of all rows of outputs of floats
	Verdict    string         `json:"verdict"`
	Problem    string         `json:"problem,omitempty"`
}

// run is one comparison with ONNX Runtime alone.
type run struct {
	How        string   `json:"how"` // "default", "forced" or "python"
	Shapes     []string `json:"shapes"`
	Difference float64  `json:"max_difference"`
	Problem    string   `json:"problem,omitempty"`
}

// table writes rows as Markdown.
func table(w io.Writer, rows []row) error {
	var b strings.Builder
	b.WriteString("| file | producer | nodes | recognised | replaced | forced | shapes | left alone | difference | " +
		"cosine | verdict |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	verdicts := map[string]int{}
	for _, r := range rows {
		verdicts[r.Verdict]++
		verdict := r.Verdict
		if r.Problem != "" {
			verdict += ": " + r.Problem
		}
		cosine := ""
		if r.Cosine != nil {
			cosine = fmt.Sprintf("%.6f", *r.Cosine)
		}
		cells := []string{r.Path, r.Producer, fmt.Sprint(r.Nodes), fmt.Sprint(r.Recognised), fmt.Sprint(r.Default),
			fmt.Sprint(r.Forced), fmt.Sprint(r.Shapes),
			reasons(r.Reasons), fmt.Sprintf("%.2g", r.Difference), cosine, verdict}
		for i, c := range cells {
			cells[i] = strings.NewReplacer("|", "\\|", "\n", " ").Replace(c)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintf(&b, "\n%d files", len(rows))
	for _, v := range []string{right, different, broken, untried, refused} {
		fmt.Fprintf(&b, ", %d %s", verdicts[v], v)
	}
	b.WriteString(".\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// reasons lists them, the most frequent first.
func reasons(of map[string]int) string {
	list := slices.Sorted(maps.Keys(of))
	slices.SortStableFunc(list, func(a, b string) int { return of[b] - of[a] })
	for i, why := range list {
		list[i] = fmt.Sprintf("%s (%d)", why, of[why])
	}
	return strings.Join(list, "; ")
}
