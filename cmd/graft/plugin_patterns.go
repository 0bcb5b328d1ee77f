package main

import (
	"fmt"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/matching"
)

// testsText counts the graphs of a plugin that are as its manifest says.
func testsText(w *page, list []matching.Tested) {
	match, other := 0, 0
	for _, t := range list {
		if t.Must {
			match++
		} else {
			other++
		}
	}
	if len(list) > 0 {
		w.printf("test graphs: %d match and %d do not, as they must\n", match, other)
	}
}

// testedText shows an operator's graphs, and what is missing in those that do not match.
func testedText(w *page, operator string, list []matching.Tested) {
	for _, t := range list {
		switch {
		case t.Operator != operator:
		case t.Problem != "":
			w.printf("    %s: not as it must be: %s\n", t.File, t.Problem)
		case t.Must:
			w.printf("    %s matches (places: %d)\n", t.File, t.Matches)
		default:
			w.printf("    %s does not match: %s\n", t.File, t.Reason)
		}
	}
}

// formsText says how large a pattern is: "5 nodes", or "12 forms of 1 to 10 nodes".
func formsText(forms []manifest.Replacement) string {
	least, most := 0, 0
	for i, f := range forms {
		n := len(f.Form.Nodes)
		if i == 0 {
			least = n
		}
		least, most = min(least, n), max(most, n)
	}
	switch {
	case len(forms) == 1 && most == 1:
		return "1 node"
	case len(forms) == 1:
		return fmt.Sprintf("%d nodes", most)
	}
	return fmt.Sprintf("%d forms of %d to %d nodes", len(forms), least, most)
}
