package main

import (
	"context"
	"flag"
	"path/filepath"
	"time"
)

// encoderArguments are the flags of the figures of encoders.
type encoderArguments struct {
	on            *bool
	texts, config *string
	threads       *int
	each          *time.Duration
	runs, cycles  *int
}

func encoderFlags() encoderArguments {
	return encoderArguments{
		on:    flag.Bool("encoders", false, "the figures of encoders (with -peers: against other engines)"),
		texts: flag.String("texts", "", "file of texts, one a line, whose lengths and tokens figures of encoders use"),
		config: flag.String("session", "",
			"session config entries of the patched sessions of encoders, NAME=VALUE with commas between"),
		threads: flag.Int("threads", 0, "threads of a session of an encoder; 0 for one a core"),
		each: flag.Duration("cell", 20*time.Second,
			"how long the timed runs of a cell of an encoder's figure may take, beyond three rounds"),
		runs:   flag.Int("runs", 10000, "runs of encoder-random, at least 1,000"),
		cycles: flag.Int("cycles", 1000, "cycles of encoder-cycles, at least 500"),
	}
}

// command is how these were said, as a result repeats it; where the texts lie says nothing.
func (a encoderArguments) command() string {
	s := " -encoders"
	if *a.texts != "" {
		s += " -texts " + filepath.Base(*a.texts)
	}
	if *a.config != "" {
		s += " -session " + *a.config
	}
	return s
}

// read makes options of them.
func (a encoderArguments) read(ctx context.Context, o *encoderOptions) (err error) {
	o.threads, o.each, o.runs, o.cycles = *a.threads, *a.each, max(*a.runs, 1000), max(*a.cycles, 500)
	if o.config, err = configEntries(*a.config); err != nil {
		return err
	}
	if *a.texts != "" {
		o.corpus, err = readCorpus(ctx, *a.texts)
	}
	return err
}
