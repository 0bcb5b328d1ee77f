package main

import (
	"fmt"

	"github.com/opgraft/graft/host/plugin/manifest"
)

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
