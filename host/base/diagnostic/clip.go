package diagnostic

import "strings"

// Clip cuts a hostile value, which could fill the terminal.
func Clip(s string) string {
	const limit = 60
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}
