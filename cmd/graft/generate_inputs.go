package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
)

// oneSource refuses inputs of several places.
func (o *generation) oneSource(cmd *cobra.Command) error {
	switch {
	case len(o.images) > 0 && cmd.Flags().Changed("input"):
		return misuse("--image and --input", "one of them")
	case len(o.texts) > 0 && len(o.images) > 0:
		return misuse("inputs and --image", "one of them")
	case len(o.texts) > 0 && cmd.Flags().Changed("input"):
		return misuse("inputs and --input", "one of them")
	}
	return nil
}

// reads is the file that is read, - for stdin; "" where the command line holds the inputs.
func (o *generation) reads() string {
	if len(o.images)+len(o.texts) > 0 {
		return ""
	}
	return o.input
}

// inputs are those of the command line, or what --input holds.
func (o *generation) inputs(longest int) (read func() (string, error), total int64, done func() error, err error) {
	if o.reads() != "" {
		return inputs(o.input, longest)
	}
	list, i := slices.Concat(o.images, o.texts), -1
	return func() (string, error) {
		if i++; i >= len(list) {
			return "", io.EOF
		}
		return list[i], nil
	}, int64(len(list)), func() error { return nil }, nil
}

// ofImages takes what is given for models of images alone, and refuses it for others.
func (o *generation) ofImages(ctx context.Context, folder string, g *generate.Generator,
	options *search.Options) error {
	images := g.Files != nil && len(g.Files.Shape()) == 4
	for _, c := range []struct {
		given bool
		name  string
	}{{len(o.images) > 0, "--image"}, {o.prompt != "", "--prompt"}} {
		if c.given && !images {
			return &diagnostic.Error{Path: folder, Found: "the model reads no images, for which " + c.name + " is",
				Fix: "leave it out"}
		}
	}
	if o.prompt == "" {
		return nil
	}
	if err := g.Prompt(ctx, options, o.prompt); err != nil {
		return misused("--prompt", err)
	}
	return nil
}

// draftModel is that of --draft where it is the name of a folder, opened or not; the search then has its drafts.
func (o *generation) draftModel() (d decode.DraftModel, err error) {
	name := o.values["draft"]
	switch *name {
	case "", "null", search.DraftNone.String(), search.DraftLookup.String():
		return d, nil
	}
	if o.baseline {
		return d, misuse("--draft with --baseline, which runs the model as exported", "one of them")
	}
	if d, err = decode.ParseDraftModel(*name); err != nil {
		return d, misused("--draft", err)
	}
	*name = search.DraftModel.String()
	return d, nil
}

// drafts refuses drafts where nothing could verify them, and says where there are none.
func (c *cli) drafts(cmd *cobra.Command, o *generation, options *search.Options) error {
	if options.Draft == search.DraftNone || !cmd.Flags().Changed("draft") {
		return nil
	}
	if o.baseline {
		return misuse("--draft with --baseline, which runs the model as exported", "one of them")
	}
	if options.NumBeamGroups > 1 || options.NumBeams == 1 && options.NumReturnSequences > 1 {
		c.warn("graft: nothing is drafted for groups of beams, or for several samples of an input")
	}
	return nil
}

// inputs opens what is read, and counts it where it can be read twice; a total of
// 0 is not known.
func inputs(path string, longest int) (read func() (string, error), total int64, done func() error, err error) {
	f, name, done := os.Stdin, "standard input", func() error { return nil }
	if path != "-" {
		if f, err = os.Open(path); err != nil {
			return nil, 0, nil, err
		}
		name, done = path, f.Close
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		begin, err := f.Seek(0, io.SeekCurrent) // a shell may have read of its standard input
		if err != nil {
			return nil, 0, nil, errors.Join(err, done())
		}
		count := pipeline.Lines(name, f, longest)
		for _, err = count(); err == nil; _, err = count() {
			total++
		}
		if !errors.Is(err, io.EOF) {
			return nil, 0, nil, errors.Join(err, done())
		}
		if _, err := f.Seek(begin, io.SeekStart); err != nil {
			return nil, 0, nil, errors.Join(err, done())
		}
	}
	return pipeline.Lines(name, f, longest), total, done, nil
}
