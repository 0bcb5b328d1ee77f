package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// continued is the n tokens that follow the prompt, the most probable first, by the loop
// that a program would write around a session. The session's model takes
// input_ids, attention_mask, position_ids and past_key_values.*, all of one row,
// and gives logits (1, tokens, vocabulary) and present.*.
func continued(ctx context.Context, l *ort.Library, s *session.Session, prompt []int64, n int) ([]int64, error) {
	d := &sequence{library: l, session: s, past: map[string]*ort.Value{}}
	defer d.close()
	if err := d.emptyPast(); err != nil {
		return nil, err
	}
	tokens := make([]int64, 0, n)
	for next := prompt; len(tokens) < n; {
		t, err := d.step(ctx, next)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		next = []int64{t}
	}
	return tokens, nil
}

// sequence is one in flight.
type sequence struct {
	library *ort.Library
	session *session.Session
	past    map[string]*ort.Value
	length  int64 // positions in past
}

func (d *sequence) close() {
	for _, v := range d.past {
		v.Close()
	}
}

// emptyPast makes pasts of no positions.
func (d *sequence) emptyPast() error {
	for _, in := range d.session.Inputs() {
		if !strings.HasPrefix(in.Name, "past_key_values.") {
			continue
		}
		shape := in.Shape
		if len(shape) != 4 || in.Element != ort.Float32 {
			return fmt.Errorf("%s is no past of rank 4 in float32", in)
		}
		v, err := ort.NewTensor(d.library, []int64{1, shape[1], 0, shape[3]}, []float32{})
		if err != nil {
			return err
		}
		d.past[in.Name] = v
	}
	return nil
}

// step feeds tokens and returns the one that follows.
func (d *sequence) step(ctx context.Context, tokens []int64) (int64, error) {
	inputs := map[string]*ort.Value{}
	for name, v := range d.past {
		inputs[name] = v
	}
	n := int64(len(tokens))
	ones, positions := make([]int64, d.length+n), make([]int64, n)
	for i := range ones {
		ones[i] = 1
	}
	for i := range positions {
		positions[i] = d.length + int64(i)
	}
	for _, in := range d.session.Inputs() {
		var v *ort.Value
		var err error
		switch in.Name {
		case "input_ids":
			v, err = ort.NewTensor(d.library, []int64{1, n}, tokens)
		case "attention_mask":
			v, err = ort.NewTensor(d.library, []int64{1, d.length + n}, ones)
		case "position_ids":
			v, err = ort.NewTensor(d.library, []int64{1, n}, positions)
		default:
			if inputs[in.Name] == nil {
				return 0, fmt.Errorf("input %s is not understood", in)
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		defer v.Close()
		inputs[in.Name] = v
	}
	results, err := d.session.Run(ctx, inputs)
	if err != nil {
		return 0, err
	}
	d.length += n
	token := int64(-1)
	for i, out := range d.session.Outputs() {
		v := results[i]
		if layer, ok := strings.CutPrefix(out.Name, "present."); ok {
			name := "past_key_values." + layer
			d.past[name].Close()
			d.past[name] = v
			continue
		}
		if out.Name == "logits" {
			token, err = mostProbable(v)
		}
		v.Close()
	}
	if err == nil && token < 0 {
		err = fmt.Errorf("the model gives no logits")
	}
	return token, err
}

// mostProbable is the place of the largest number of the last row.
func mostProbable(logits *ort.Value) (int64, error) {
	data, err := ort.Data[float32](logits)
	if err != nil {
		return 0, err
	}
	shape := logits.Shape()
	row := data[int64(len(data))-shape[len(shape)-1]:]
	at := 0
	for i, x := range row {
		if x > row[at] {
			at = i
		}
	}
	return int64(at), nil
}
