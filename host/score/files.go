package score

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Files compares an output file of graft generate, in the form "text" or "jsonl",
// with a file of references, one a line. Of several sequences of an input the first
// counts; a line for which nothing was generated counts as empty.
func Files(output, form, reference string) (*Scores, error) {
	first, err := sequenceOf(form)
	if err != nil {
		return nil, err
	}
	outputs, err := lines(output, first)
	if err != nil {
		return nil, err
	}
	references, err := lines(reference, func(line string) (string, error) { return line, nil })
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
func lines(path string, take func(string) (string, error)) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		line, err := take(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(list)+1, err)
		}
		list = append(list, line)
	}
	return list, nil
}
