package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Exit codes, the same for every command.
const (
	exitOK           = 0
	exitError        = 1
	exitUsage        = 2
	exitVerification = 3
	exitIncompatible = 4
	exitDiffers      = 5
	exitInterrupted  = 130 // 128 and the signal's number, as shells count it
)

// Kinds of errors that have an exit code of their own.
var (
	errUsage   = errors.New("wrong command line")
	errDiffers = errors.New("the answers differ") // by more than their tolerance
	errSlower  = errors.New("not as fast as required")
)

// errSaid is an error whose message has been printed already.
var errSaid = errors.New("said")

func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errDiffers), errors.Is(err, errSlower):
		return exitDiffers
	case errors.Is(err, refusal.ErrIncompatible):
		return exitIncompatible
	case errors.Is(err, refusal.ErrVerification):
		return exitVerification
	}
	return exitError
}

// misuse refuses a command line: what was given, and what is needed. The command's help is the fix.
func misuse(found, needed string) error {
	return &diagnostic.Error{Kind: errUsage, Found: found, Needed: needed}
}

// misused makes err the refusal of a command line, with what comes before it in place of a path.
func misused(before string, err error) error {
	e := &diagnostic.Error{Kind: errUsage, Found: err.Error(), Cause: err}
	var parts *diagnostic.Error
	if errors.As(err, &parts) && err == error(parts) {
		e.Path, e.Found, e.Needed, e.Fix = parts.Path, parts.Found, parts.Needed, parts.Fix
	}
	if before != "" {
		e.Found = before + ": " + e.Found
	}
	return e
}

// without refuses flags that do not apply to the model or folder that is given.
func without(cmd *cobra.Command, given, needed string, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return misuse("--"+name+" with "+given, needed)
		}
	}
	return nil
}

// helped names the command's help in a wrong command line that does not say what to do.
func helped(cmd *cobra.Command, err error) error {
	var e *diagnostic.Error
	if !errors.Is(err, errUsage) || !errors.As(err, &e) || e.Fix != "" {
		return err
	}
	named := *e
	named.Fix = "see " + cmd.CommandPath() + " --help"
	return &named
}

// inOneForm is an error of the operating system in the form that all errors have; others as they are.
func inOneForm(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return &diagnostic.Error{Path: e.Path, Found: e.Err.Error(), Cause: e}
	}
	return err
}

// report prints an error for people, or as one JSON object in a line.
func report(w io.Writer, asJSON bool, err error) {
	if errors.Is(err, errSaid) {
		return
	}
	err = inOneForm(err)
	if asJSON {
		if object, failed := diagnostic.JSON(err); failed == nil {
			fmt.Fprintf(w, "%s\n", diagnostic.PrintableJSON(object))
			return
		}
	}
	fmt.Fprintf(w, "graft: %s\n", diagnostic.PrintableLines(strings.TrimPrefix(err.Error(), "graft: ")))
}

// wantsJSON reports -o json in a command line, which may be too wrong to be parsed.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	form := ""
	for i, a := range args {
		switch value, long := strings.CutPrefix(a, "--output="); {
		case (a == "-o" || a == "--output") && i+1 < len(args):
			value = args[i+1]
			fallthrough
		case long:
			if value == "json" || value == "text" {
				form = value
			}
		case a == "-ojson" || a == "-o=json":
			form = "json"
		}
	}
	return form == "json"
}
