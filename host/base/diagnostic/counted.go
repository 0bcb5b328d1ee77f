package diagnostic

import (
	"fmt"
	"strings"
)

// Counted is a number of things: "1 line", "2 batches", "3 matrices". What is one of many ends with "s" for more.
func Counted[N ~int | ~int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	switch {
	case strings.HasSuffix(what, "ch"):
		what += "e"
	case strings.HasSuffix(what, "ix"):
		what = strings.TrimSuffix(what, "ix") + "ice"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
