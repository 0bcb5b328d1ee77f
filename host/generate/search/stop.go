package search

import (
	"encoding/json"
	"fmt"
	"slices"
)

// setStopStrings reads one string or a list of them.
func setStopStrings(o *Options, raw json.RawMessage) error {
	var one *string
	if json.Unmarshal(raw, &one) == nil {
		if o.StopStrings = nil; one != nil {
			o.StopStrings = []string{*one}
		}
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return fmt.Errorf("found %s, a string or a list of strings is needed", clip(raw))
	}
	o.StopStrings = list
	return nil
}

func (o *Options) validateStops() error {
	switch {
	case len(o.StopStrings) == 0:
		return nil
	case slices.Contains(o.StopStrings, ""):
		return fmt.Errorf("stop_strings has an empty string: it would end every sequence at once")
	case o.NumBeams > 1:
		return fmt.Errorf("stop_strings is set and num_beams is %d: only greedy search and sampling end at them", o.NumBeams)
	}
	return nil
}

// Sequence is the tokens that a search of one sequence, greedy or sampled, has chosen so far; nil for any other.
func (s *State) Sequence() []int32 {
	switch {
	case s.o.NumBeams > 1 || len(s.groups) > 1:
		return nil
	case s.done && len(s.results) > 0:
		return s.results[0].Tokens
	case len(s.groups[0].rows) > 0:
		return s.groups[0].rows[0].tokens
	}
	return nil
}
