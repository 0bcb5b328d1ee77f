package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
)

// Names of what make trained-models makes where espeak-ng is installed.
const (
	whisperTiny   = "whisper-tiny.en"
	trainedSpeech = "speech"
)

// Of sounds: those of -quick, and by how much of the words int8 may be wrong more often than float32.
const (
	quickSounds = 2
	wordsRise   = 0.005
)

// wordsReport is the raw figures.
type wordsReport struct {
	SchemaVersion int          `json:"schema_version"`
	Model         string       `json:"model"`
	Sounds        int          `json:"sounds"`
	Words         int          `json:"words"`
	References    []string     `json:"references"`
	Sides         []*wordsSide `json:"sides"` // the model as exported first
}

// wordsSide is what one way to run the model heard.
type wordsSide struct {
	Name    string               `json:"name"`
	WER     float64              `json:"wer"`
	Equal   int                  `json:"equal"` // texts that are those of the model as exported, to the letter
	Texts   []string             `json:"texts"`
	Weights *engine.WeightReport `json:"weights,omitempty"`

	weights string
	cache   plan.Storage
}

// whisperWords is how many words Whisper tiny.en hears wrong, of espeak-ng's speech and recordings of packages.
func whisperWords() figure {
	const what = "Whisper tiny.en (trained), words that are heard wrong, of 50 sentences that espeak-ng speaks and a " +
		"recording: as exported, float32, int8, int4"
	need := fmt.Sprintf("float32's texts equal to the exported model's, int8 at most %.1f %% of the words more",
		100*wordsRise)
	return figure{"whisper-words", what, need, func(ctx context.Context, b *bench) (*outcome, error) {
		folder, err := trainedFolder(whisperTiny)
		if err != nil {
			return nil, err
		}
		sounds, references, err := spoken()
		if err != nil {
			return nil, err
		}
		if b.quick {
			sounds, references = sounds[:quickSounds], references[:quickSounds]
		}
		r := &wordsReport{SchemaVersion: 1, Model: whisperTiny, Sounds: len(sounds), References: references,
			Sides: []*wordsSide{
				{Name: "as exported"}, {Name: "float32", weights: "float32"}, {Name: "int8", weights: "int8"},
				{Name: "int8, cache of int8", weights: "int8", cache: plan.Int8}, {Name: "int4", weights: "int4"},
			}}
		for i, s := range r.Sides {
			fmt.Fprintf(os.Stderr, "whisper-words: %d sounds, %s\n", len(sounds), s.Name)
			if err := s.hear(ctx, b, folder, sounds, i == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		return r.outcome()
	}}
}

// spoken are the paths of the sounds and what is said in each.
func spoken() (sounds, references []string, err error) {
	folder, err := trainedFolder(trainedSpeech)
	if err != nil {
		return nil, nil, err
	}
	lists := map[string][]string{}
	for _, name := range []string{"sounds.txt", "references.txt"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, nil, err
		}
		lists[name] = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	}
	sounds, references = lists["sounds.txt"], lists["references.txt"]
	if len(sounds) != len(references) || len(sounds) < quickSounds {
		return nil, nil, &diagnostic.Error{Path: folder,
			Found:  fmt.Sprintf("%d sounds and %d references", len(sounds), len(references)),
			Needed: "one reference for each sound", Fix: "remove the folder and run make trained-models"}
	}
	for i, name := range sounds {
		sounds[i] = filepath.Join(folder, name)
	}
	return sounds, references, nil
}

// hear generates the texts of all sounds, greedily, as Whisper's own configuration says.
func (s *wordsSide) hear(ctx context.Context, b *bench, folder string, sounds []string, asExported bool) (err error) {
	o := decode.Options{Library: b.library, Plugins: b.set, CacheBytes: 1 << 30}
	open := generate.Open
	if asExported {
		open = generate.OpenExported
	} else {
		if o.Weights, err = prepare.ParseWeights(s.weights); err != nil {
			return err
		}
		if s.cache != "" {
			if err := o.Attention.Cache(s.cache); err != nil {
				return err
			}
		}
	}
	g, err := open(ctx, folder, o)
	if err != nil {
		return err
	}
	defer g.Close()
	at := 0
	summary, err := g.Run(ctx, g.Search(), func() (string, error) {
		if at++; at > len(sounds) {
			return "", io.EOF
		}
		return sounds[at-1], nil
	}, func(r generate.Result) error {
		if r.Err != nil {
			return r.Err
		}
		s.Texts = append(s.Texts, r.Sequences[0].Text)
		return nil
	}, pipeline.Options{})
	if err != nil {
		return err
	}
	s.Weights = summary.Weights
	return nil
}

// outcome scores words without case and punctuation, as models/export/spoken.py does.
func (r *wordsReport) outcome() (*outcome, error) {
	said := make([]string, len(r.References))
	for i, text := range r.References {
		said[i] = lettersOf(text)
		r.Words += len(strings.Fields(said[i]))
	}
	out := &outcome{Detail: r}
	var got []string
	for _, s := range r.Sides {
		heard := make([]string, len(s.Texts))
		for i, text := range s.Texts {
			heard[i] = lettersOf(text)
			if text == r.Sides[0].Texts[i] {
				s.Equal++
			}
		}
		s.WER = wordErrorRate(heard, said)
		got = append(got, fmt.Sprintf("%s %.2f %% (%d of %d texts equal)", s.Name, 100*s.WER, s.Equal, r.Sounds))
	}
	exact, eight := r.Sides[1], r.Sides[2]
	out.Met = exact.Equal == r.Sounds && eight.WER <= exact.WER+wordsRise
	out.Got = strings.Join(got, "; ")
	out.Answers = fmt.Sprintf("%d words of %d sounds", r.Words, r.Sounds)
	return out, nil
}

// lettersOf is a text without case and punctuation: letters and digits, where white space divides words.
func lettersOf(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsLetter(c) || unicode.IsNumber(c):
			return c
		case unicode.IsSpace(c):
			return ' '
		}
		return -1
	}, strings.ToLower(text))
}
