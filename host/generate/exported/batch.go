package exported

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
)

// batch is one run of a batch.
type batch struct {
	*sessions
	size, beams int   // requests, and rows of a request
	limit       int   // positions at most
	length      int   // positions in past
	read        int64 // what the encoder's mask is over
	hidden      *ort.Value
	repeated    *ort.Value            // hidden for every row; nil until a step reads it
	cross       map[string]*ort.Value // repeated for the beams, by name of input
	own         []*layer
	owned       []*ort.Value // to be closed in the end
	logits      *ort.Value
	tokens      []int64
	stepper     search.Stepper
}

// layer is one tensor of the decoder's own past, or a state, with two buffers that take turns.
type layer struct {
	input, output string
	row           []int64 // the axes of a row; 0 for that of tokens
	past, present []float32
}

// shape is that of rows that hold some tokens.
func (l *layer) shape(rows, length int64) []int64 {
	shape := []int64{rows}
	for _, d := range l.row {
		if d == 0 {
			d = length
		}
		shape = append(shape, d)
	}
	return shape
}

// elements are those of rows that hold some tokens.
func (l *layer) elements(rows, length int64) int64 {
	n := int64(1)
	for _, d := range l.shape(rows, length) {
		n *= d
	}
	return n
}

func (b *batch) close() {
	for _, v := range b.owned {
		v.Close()
	}
	if b.logits != nil {
		b.logits.Close()
	}
}

// choose asks the search about the rows of requests that have not ended.
func (b *batch) choose(selector search.Selector, requests []*search.State, logits []float32, rows, vocab int) error {
	var open []*search.State
	gathered := logits
	all := true
	for _, s := range requests {
		all = all && !s.Done() && s.Rows() == rows
	}
	if !all {
		gathered = nil
		for i, s := range requests {
			if !s.Done() {
				gathered = append(gathered, logits[i*rows*vocab:(i*rows+s.Rows())*vocab]...)
			}
		}
	}
	for _, s := range requests {
		if !s.Done() {
			open = append(open, s)
		}
	}
	return b.stepper.Step(selector, gathered, vocab, open)
}

// prefill feeds the decoder the first n tokens of every prompt.
func (b *batch) prefill(f *feeds, s *session.Session, inputs []request, n int) error {
	var tokens []int64
	for _, in := range inputs {
		for _, t := range in.prompt[:n] {
			tokens = append(tokens, int64(t))
		}
	}
	b.length, b.read = 0, inputs[0].read()
	return b.common(f, s, tokens, int64(b.size), int64(n), false)
}

// detect puts the language that the model detects into prompts that leave it open.
func (b *batch) detect(ctx context.Context, o search.Options, inputs []request, vocab int) ([]request, error) {
	open := slices.Index(inputs[0].prompt, search.NoToken)
	if open < 0 {
		return inputs, nil
	}
	feed := b.feeds()
	defer feed.close()
	s := b.decoder
	if b.first != nil {
		s = b.first
	}
	if err := b.prefill(feed, s, inputs, open); err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, feed.values, b.First.Logits)
	if err != nil {
		return nil, err
	}
	defer results[0].Close()
	logits, err := lastRows(results[0])
	if err != nil {
		return nil, err
	}
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].prompt = slices.Clone(inputs[i].prompt)
		if inputs[i].prompt[open], err = o.Detected(logits[i*vocab : (i+1)*vocab]); err != nil {
			return nil, fmt.Errorf("input %d: %w", inputs[i].index, err)
		}
	}
	return inputs, nil
}

// prompt runs the prompts, and repeats their keys and values for
// the beams.
func (b *batch) prompt(ctx context.Context, inputs []request) ([]float32, error) {
	feed := b.feeds()
	defer feed.close()
	s := b.decoder
	if b.first != nil {
		s = b.first
	}
	if b.fixed > 0 && b.fixed != len(inputs[0].prompt) {
		return b.promptBySteps(ctx, inputs)
	}
	if err := b.prefill(feed, s, inputs, len(inputs[0].prompt)); err != nil {
		return nil, err
	}
	results, err := s.Run(ctx, feed.values)
	if err != nil {
		return nil, err
	}
	b.length = len(inputs[0].prompt)
	var logits []float32
	for i, out := range s.Outputs() {
		v := results[i]
		if out.Name == b.First.Logits {
			logits, err = lastRows(v)
			b.logits = v
		} else {
			err = errors.Join(err, b.take(out, v))
			v.Close()
		}
	}
	if errors.Is(err, errShort) {
		return b.promptBySteps(ctx, inputs)
	}
	return logits, err
}

// errShort reports a state of a prompt that is shorter than the state's window.
var errShort = errors.New("a state is shorter than the next step takes it")

// promptBySteps runs the prompts token by token, from states of zero and no past: of a decoder with states the graph
// for prompts may be for one length, or for those of a state's window and more.
func (b *batch) promptBySteps(ctx context.Context, inputs []request) (logits []float32, err error) {
	b.own, b.length, b.self = nil, 0, 0
	for _, in := range b.decoder.Inputs() {
		if b.Decoder.Present(in.Name) == "" {
			continue
		}
		row, err := b.rowOf(in)
		if err != nil {
			return nil, err
		}
		b.keep(in.Name, row)
	}
	for at := range inputs[0].prompt {
		b.tokens = nil
		for _, in := range inputs {
			b.tokens = append(b.tokens, int64(in.prompt[at]))
		}
		if at > 0 {
			b.swap()
		}
		if logits, err = b.step(ctx, int64(b.size)); err != nil {
			return nil, err
		}
	}
	return logits, nil
}

// keep begins to keep what comes back as an input.
func (b *batch) keep(input string, row []int64) *layer {
	l := &layer{input: input, output: b.Decoder.Present(input), row: row}
	elements := l.elements(int64(b.size*b.beams), int64(b.limit))
	l.past, l.present = make([]float32, elements), make([]float32, elements)
	b.self += 2 * 4 * elements
	b.own = append(b.own, l)
	return l
}

// swap makes the present of every row its past.
func (b *batch) swap() {
	for _, l := range b.own {
		l.past, l.present = l.present, l.past
	}
}

// lastRows are the logits of each request's last token.
func lastRows(v *ort.Value) ([]float32, error) {
	data, err := ort.Data[float32](v)
	if err != nil {
		return nil, err
	}
	shape := v.Shape()
	n, vocab := shape[1], shape[2]
	if n == 1 {
		return data, nil
	}
	var rows []float32
	for i := range shape[0] {
		rows = append(rows, data[((i+1)*n-1)*vocab:(i+1)*n*vocab]...)
	}
	return rows, nil
}

// take stores a present of the prompt, repeated for the beams.
func (b *batch) take(out ort.ValueInfo, v *ort.Value) error {
	input := b.First.Next[out.Name]
	held, shape := b.Decoder.Inputs[input], v.Shape()
	if input == "" || held.Is == roles.EncoderOutput || isWindow(out) {
		return nil // handed on
	}
	data, err := ort.Data[float32](v)
	if err != nil {
		return fmt.Errorf("output %s: %w", out.Name, err)
	}
	if held.Is == roles.EncoderPast {
		if b.cross[input] != nil || len(data) == 0 {
			return nil
		}
		t, err := b.forBeams(v)
		if err != nil {
			return err
		}
		if b.cross == nil {
			b.cross = map[string]*ort.Value{}
		}
		b.cross[input] = t
		return nil
	}
	if b.Decoder.Present(input) == "" {
		return fmt.Errorf("input %s comes back as no output that the graph or a name tells, so that no step can follow "+
			"another", input)
	}
	row := slices.Clone(shape[1:])
	if held.Axis > 0 && held.Axis < len(shape) {
		row[held.Axis-1] = 0
	}
	for i, d := range row {
		if declared := out.Shape[i+1]; d > 0 && declared > 0 && d != declared {
			return errShort
		}
	}
	// As if it were a present of one row a request, from which the first step's rows are taken.
	copy(b.keep(input, row).present, data)
	return nil
}

// forBeams repeats what each request has for each of its beams.
func (b *batch) forBeams(v *ort.Value) (*ort.Value, error) {
	data, err := ort.Data[float32](v)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(v.Shape())
	request := len(data) / b.size
	var repeated []float32
	for i := range b.size {
		for range b.beams {
			repeated = append(repeated, data[i*request:(i+1)*request]...)
		}
	}
	shape[0] = int64(b.size * b.beams)
	t, err := ort.NewTensor(b.library, shape, repeated)
	if err != nil {
		return nil, err
	}
	b.sessions.cross += 4 * int64(len(repeated))
	b.owned = append(b.owned, t)
	return t, nil
}

// hiddenOfRows is the encoder's output for every row.
func (b *batch) hiddenOfRows() (_ *ort.Value, err error) {
	if b.repeated == nil {
		b.repeated, err = b.forBeams(b.hidden)
	}
	return b.repeated, err
}

// follow makes the next step's past of the present: by swapping buffers when
// every row goes on, else by moving rows. rows is the number of rows of a request
// in the present.
func (b *batch) follow(requests []*search.State, rows int) {
	parents := make([]int, b.size*b.beams)
	b.tokens = make([]int64, b.size*b.beams)
	same := rows == b.beams
	for i, s := range requests {
		for j := range b.beams {
			at := i*b.beams + j
			parents[at] = i*rows + min(j, rows-1)
			if moves := s.Moves(); !s.Done() && len(moves) > 0 {
				m := moves[min(j, len(moves)-1)]
				parents[at], b.tokens[at] = i*rows+m.Parent, int64(m.Token)
			}
			same = same && parents[at] == at
		}
	}
	if same {
		b.swap()
		return
	}
	move(b.own, parents, b.length)
}

// step runs one token for each of some rows.
func (b *batch) step(ctx context.Context, rows int64) ([]float32, error) {
	feed := b.feeds()
	defer feed.close()
	if err := b.common(feed, b.decoder, b.tokens, rows, 1, true); err != nil {
		return nil, err
	}
	binding, err := b.decoder.NewBinding()
	if err != nil {
		return nil, err
	}
	defer binding.Close()
	for name, v := range feed.values {
		if err := binding.Input(name, v); err != nil {
			return nil, err
		}
	}
	cpu, err := b.library.Memory("Cpu", 0)
	if err != nil {
		return nil, err
	}
	bound := map[string]bool{}
	for _, l := range b.own {
		next := int64(b.length + 1)
		v, err := ort.NewTensor(b.library, l.shape(rows, next), l.present[:l.elements(rows, next)])
		if err != nil {
			return nil, err
		}
		feed.made = append(feed.made, v)
		bound[l.output] = true
		if err := binding.Output(l.output, v); err != nil {
			return nil, err
		}
	}
	for _, out := range b.decoder.Outputs() {
		if bound[out.Name] {
			continue
		}
		if err := binding.OutputTo(out.Name, cpu); err != nil {
			return nil, err
		}
	}
	if err := binding.Run(ctx); err != nil {
		return nil, err
	}
	b.length++
	results, err := binding.Outputs()
	if err != nil {
		return nil, err
	}
	if b.logits != nil {
		b.logits.Close()
	}
	for name, v := range results {
		if name == b.Decoder.Logits {
			b.logits = v
			continue
		}
		v.Close()
	}
	if b.logits == nil {
		return nil, fmt.Errorf("the model gave no %s", b.Decoder.Logits)
	}
	return ort.Data[float32](b.logits)
}
