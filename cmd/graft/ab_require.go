package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/changes"
	"github.com/opgraft/graft/host/measure/statistics"
)

// requireFlag is --require, which judges a result.
type requireFlag struct {
	text   string
	factor float64
}

func (r *requireFlag) register(f *pflag.FlagSet) {
	f.StringVar(&r.text, "require", "",
		"exit code 5 unless every side is known to be so many times as fast as a (1.2x): "+
			"the lower end of the interval counts")
}

// check reads the flag before anything is measured.
func (r *requireFlag) check(rounds int) error {
	if r.text == "" {
		return nil
	}
	if 2*rounds < statistics.FewRuns {
		return misuse(fmt.Sprintf("--require with --rounds %d", rounds),
			fmt.Sprintf("at least %d rounds: of fewer, chance decides", statistics.FewRuns/2))
	}
	return r.parse()
}

// parse reads how many times as fast is required.
func (r *requireFlag) parse() (err error) {
	if r.text == "" {
		return nil
	}
	if r.factor, err = changes.Factor(r.text); err != nil {
		return misused("--require", err)
	}
	return nil
}

// met is the error that a side of what was measured, or compared, is not as fast as is required.
func (r *requireFlag) met(path, a string, of interface {
	Short(factor float64) []changes.Shortfall
}) error {
	if r.text == "" {
		return nil
	}
	list := of.Short(r.factor)
	if len(list) == 0 {
		return nil
	}
	var words []string
	for _, s := range list {
		words = append(words, s.String())
	}
	return &diagnostic.Error{Kind: errSlower, Path: path,
		Found:  fmt.Sprintf("not known to be %gx as fast as %s: %s", r.factor, a, strings.Join(words, "; ")),
		Needed: "intervals that begin there",
		Fix:    "more --rounds make them narrower"}
}

// localTime is a time to the minute where people are.
func localTime(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return t.Local().Format("2006-01-02 15:04")
}
