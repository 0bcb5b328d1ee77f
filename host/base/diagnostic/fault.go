package diagnostic

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Fault is the error of a panic, made where it is recovered: what slips through the checks of a model must not end the
// program that opened it. During is what panicked, "analysis" say.
func Fault(path, during string, panicked any) *Error {
	return &Error{Path: path, Found: fmt.Sprintf("this model shows a fault in its %s (%v%s)", during, panicked, where()),
		Fix: "please report it; it runs without graft"}
}

// Recovered makes an error of a panic of the function that defers it.
func Recovered(path, during string, err *error) {
	if p := recover(); p != nil {
		*err = Fault(path, during, p)
	}
}

// where is the line that panicked, " at FILE:LINE", as far as it is known.
func where() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	panicked := false
	for {
		f, more := frames.Next()
		own := !strings.HasPrefix(f.Function, "runtime.")
		if panicked && own {
			return fmt.Sprintf(" at %s:%d", filepath.Base(f.File), f.Line)
		}
		panicked = panicked || f.Function == "runtime.gopanic"
		if !more {
			return ""
		}
	}
}
