package score

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opgraft/graft/host/generate/pipeline"
)

// Files compares an output file of graft generate, in the form "text" or "jsonl",
// with a file of references, one a line. Of several sequences of an input the first
// counts; a line for which nothing was generated counts as empty. No line may have more than longest bytes, and an
// object 16 times as many.
func Files(output, form, reference string, longest int) (*Scores, error) {
	first, err := sequenceOf(form)
	if err != nil {
		return nil, err
	}
	room := longest
	if form == "jsonl" {
		room *= 16
	}
	outputs, err := lines(output, room, first)
	if err != nil {
		return nil, err
	}
	references, err := lines(reference, longest, func(line string) (string, error) { return line, nil })
	if err != nil {
		return nil, err
	}
	s, err := Of(outputs, references)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", output, reference, err)
	}
	return s, nil
}

// sequenceOf takes the best sequence out of a line.
func sequenceOf(form string) (func(line string) (string, error), error) {
	switch form {
	case "text":
		return func(line string) (string, error) {
			best, _, _ := strings.Cut(line, "\t")
			return best, nil
		}, nil
	case "jsonl":
		return func(line string) (string, error) {
			var r struct{ Sequences []struct{ Text string } }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return "", fmt.Errorf("%w; needed is an object of graft generate --format jsonl", err)
			}
			if len(r.Sequences) == 0 {
				return "", nil
			}
			return r.Sequences[0].Text, nil
		}, nil
	}
	return nil, fmt.Errorf("the form %q is not known, needed is text or jsonl", form)
}

// lines reads a file and takes of each line what take gives.
func lines(path string, longest int, take func(string) (string, error)) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []string
	for read := pipeline.Lines(path, f, longest); ; {
		line, err := read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err == nil {
			if line, err = take(line); err != nil {
				err = fmt.Errorf("%s, line %d: %w", path, len(list)+1, err)
			}
		}
		if err != nil {
			return nil, err
		}
		list = append(list, line)
	}
}
