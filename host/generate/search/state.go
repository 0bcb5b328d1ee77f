package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Input is what a search starts from.
type Input struct {
	// Prompt are the tokens which the decoder reads first, at least one.
	Prompt []int32
	// Encoder are the tokens of the encoder's input, for the options that look at them. Without
	// an encoder leave it empty: they look at the prompt then.
	Encoder []int32
	// Vocab is the width of a row of logits.
	Vocab int
	// Stopped says whether the text of generated tokens has one of Options.StopStrings; nil: none has.
	Stopped func(tokens []int32) bool
	// Index is the place among all inputs. The random numbers of its sequence q
	// are math/rand/v2's PCG seeded with Options.Seed and Index*65536+q, so that they do not depend
	// on the batch.
	Index uint64
}

// Move says how a row of the next step comes about: row Parent of this step continues with Token.
type Move struct {
	Parent int
	Token  int32
}

// State is the search over one input. It starts with one row, the end of the prompt. One
// goroutine at a time.
type State struct {
	o      Options
	in     Input
	limit  int // length, prompt included, at which a sequence ends
	least  int // length below which end tokens are banned
	first  int // length at which BeginSuppressTokens are banned
	groups []group
	beams  int // rows of a group at most

	own     *ngrams // n-grams of the sequence itself; nil: they may come again
	encoder *ngrams // of the encoder's input
	nodes   int32   // nodes given to paths so far

	encoderPenalty []Processor // for every row
	promptPenalty  []Processor
	inPrompt       map[int32]bool // nil: no repetition penalty

	started bool
	chosen  []int32 // tokens chosen by the groups of this step so far
	moves   []Move
	results []Hypothesis
	done    bool

	draft    []int32 // tokens that the next step has logits after: position by position, a token for each row
	accepted int     // positions of the draft of the last step
	order    []int   // after a position was accepted: the row of the step, and of its draft, that each row goes on with
	spare    []int   // memory of an order

	forked     bool    // made by Fork
	confidence float64 // of a fork
}

// group is a group of beams, or one sequence in greedy search and sampling.
type group struct {
	rows   []row
	next   []step
	found  hypotheses
	done   bool
	source rand.PCG
	random *rand.Rand // of source; nil: nothing is sampled
}

// row is an open sequence. path has a node for each token, shared with those who descend from it;
// penalties are the repetition penalties of its own tokens, each once.
type row struct {
	tokens    []int32
	path      []int32
	penalties []Processor
	score     float32
}

// step is one continuation that was taken: a row of the group, a token and the new score.
type step struct {
	parent int
	token  int32
	score  float32
}

// New starts the search for one input. It is an error that an option is out of range, contradicts
// another or the input, or that the prompt leaves no room below the length limit.
func New(o Options, in Input) (*State, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkInput(&o, in); err != nil {
		return nil, err
	}
	s := &State{o: o, in: in, limit: o.LengthLimit(len(in.Prompt)), least: o.MinLength, first: len(in.Prompt)}
	if s.limit <= len(in.Prompt) {
		return nil, fmt.Errorf("the prompt has %d tokens and max_length allows %d in all: shorten the prompt or set "+
			"max_new_tokens", len(in.Prompt), s.limit)
	}
	if o.MinNewTokens > 0 {
		s.least = len(in.Prompt) + o.MinNewTokens
	}
	if len(in.Prompt) == 1 && o.ForcedBOSTokenID != NoToken {
		s.first++
	}
	if s.o.PadTokenID == NoToken && len(o.EOSTokenID) > 0 {
		s.o.PadTokenID = o.EOSTokenID[0]
	}
	groups := o.NumBeamGroups
	s.beams = o.NumBeams / o.NumBeamGroups
	if o.NumBeams == 1 {
		groups = o.NumReturnSequences
	}
	s.groups = make([]group, groups)
	for i := range s.groups {
		s.groups[i].rows = []row{{}}
		if o.DoSample {
			s.groups[i].source = *rand.NewPCG(o.Seed, in.Index*65536+uint64(i))
			s.groups[i].random = rand.New(&s.groups[i].source)
		}
	}
	s.prepareProcessors()
	return s, nil
}

func checkInput(o *Options, in Input) error {
	if in.Vocab < 1 {
		return fmt.Errorf("the vocabulary has %d tokens: at least 1 is needed", in.Vocab)
	}
	if len(in.Prompt) == 0 {
		return fmt.Errorf("the prompt is empty: at least one token is needed (bos_token_id or decoder_start_token_id)")
	}
	if o.IsEncoderDecoder && len(in.Encoder) == 0 {
		for _, c := range []struct {
			name string
			set  bool
		}{
			{"encoder_no_repeat_ngram_size", o.EncoderNoRepeatNgramSize > 0},
			{"encoder_repetition_penalty", o.EncoderRepetitionPenalty != 1},
		} {
			if c.set {
				return fmt.Errorf("%s is set, but the encoder's input is not made of tokens: leave it out", c.name)
			}
		}
	}
	inside := func(name string, tokens ...int32) error {
		for _, t := range tokens {
			if int(t) >= in.Vocab {
				return fmt.Errorf("%s has the token %d, but the model has %d logits", name, t, in.Vocab)
			}
		}
		return nil
	}
	for _, word := range o.BadWordsIDs {
		if err := inside("bad_words_ids", word...); err != nil {
			return err
		}
	}
	for _, b := range o.SequenceBias {
		if err := inside("sequence_bias", b.Tokens...); err != nil {
			return err
		}
	}
	if err := inside("forced_bos_token_id", o.ForcedBOSTokenID); err != nil {
		return err
	}
	return inside("forced_eos_token_id", o.ForcedEOSTokenID)
}

// Rows gives the number of rows whose logits the next step needs; 0 when the search is done.
func (s *State) Rows() int {
	if s.done {
		return 0
	}
	if !s.started {
		return 1
	}
	n := 0
	for i := range s.groups {
		n += len(s.groups[i].rows)
	}
	return n
}

// Moves gives the rows of the next step, in order, as the last step made them. Rows that ended are
// not among them. The slice is valid until the next step.
func (s *State) Moves() []Move { return s.moves }

// Done says that the search needs no more logits.
func (s *State) Done() bool { return s.done }

// Limit gives the length, prompt included, at which sequences end.
func (s *State) Limit() int { return s.limit }

// Results gives the NumReturnSequences best hypotheses, best first (sampled sequences in the order in
// which they were sampled), once the search is done. There are fewer where bans left fewer ways to go.
func (s *State) Results() []Hypothesis { return s.results }

// phases is the number of selector calls in a step.
func (s *State) phases() int {
	if s.o.NumBeamGroups > 1 {
		return len(s.groups)
	}
	return 1
}

// inPhase says whether a group is in a phase's request.
func (s *State) inPhase(i, phase int) bool {
	if s.phases() == 1 {
		return phase == 0 && !s.groups[i].done
	}
	return i == phase && !s.groups[i].done
}

// request fills in its rows of a request, from a first row on, and appends its groups of that phase.
func (s *State) request(phase, first int, req *Request, processors []Processor) []Processor {
	if phase == 0 {
		s.chosen = s.chosen[:0]
	}
	at := first
	for i := range s.groups {
		g := &s.groups[i]
		if !s.started {
			at = first // all groups start from the one row
		}
		if s.inPhase(i, phase) {
			for j := range g.rows {
				start := len(processors)
				processors = s.processors(processors, &g.rows[j])
				req.Rows[at+j] = Row{Processors: processors[start:len(processors):len(processors)]}
				if s.o.NumBeams > 1 {
					req.Rows[at+j].Bias = g.rows[j].score
				}
			}
			req.Groups = append(req.Groups, s.group(g, at))
		} else if g.done && i == phase {
			// What a group that is done would choose is padding, and counts as chosen.
			for range s.beams {
				s.chosen = append(s.chosen, s.o.PadTokenID)
			}
		}
		at += len(g.rows)
	}
	return processors
}

// group gives a group's part of the request.
func (s *State) group(g *group, first int) Group {
	o := &s.o
	req := Group{First: first, Count: len(g.rows), K: 1, Mode: Raw, Normalize: o.RenormalizeLogits}
	if o.NumBeams > 1 {
		req.Mode = LogProbs
		// Enough that every beam has a token that does not end it.
		req.K = max(2, 1+len(o.EOSTokenID)) * s.beams
	}
	if !o.DoSample {
		req.Normalize = req.Normalize || o.OutputScores && req.Mode == Raw
		return req
	}
	req.LogSoftmax = req.Mode == LogProbs
	req.Mode = Sample
	req.Temperature, req.TopK, req.TopP, req.MinP, req.TypicalP = o.Temperature, o.TopK, o.TopP, o.MinP, o.TypicalP
	if req.TopP == 0 {
		req.TopP = math.SmallestNonzeroFloat32 // 0 is the best token alone; in a Group it is: off
	}
	if req.LogSoftmax {
		req.MinKeep = max(2, len(o.EOSTokenID)+1)
	}
	for range req.K {
		req.Uniform = append(req.Uniform, g.random.Float32())
	}
	return req
}

// take reads the candidates of the groups that request appended, first being the request's number of
// the first row.
func (s *State) take(phase, first int, lists [][]Candidate) error {
	base := first
	for i := range s.groups {
		g := &s.groups[i]
		if !s.started {
			base = first
		}
		if s.inPhase(i, phase) {
			list := lists[0]
			lists = lists[1:]
			if err := s.choose(g, base, list); err != nil {
				return err
			}
		}
		base += len(g.rows)
	}
	return nil
}

// choose turns a group's candidates into its next steps and ended hypotheses.
func (s *State) choose(g *group, base int, list []Candidate) error {
	if len(list) == 0 {
		return fmt.Errorf("top-k selection gave no candidate for rows %d to %d: every token is banned or impossible", base,
			base+len(g.rows)-1)
	}
	for _, c := range list {
		if r := int(c.Row) - base; r < 0 || r >= len(g.rows) || c.Token < 0 || int(c.Token) >= s.in.Vocab {
			return fmt.Errorf("top-k selection gave row %d and token %d: rows %d to %d and tokens below %d were requested",
				c.Row, c.Token, base, base+len(g.rows)-1, s.in.Vocab)
		}
	}
	g.next = g.next[:0]
	if s.o.NumBeams == 1 {
		c := list[0]
		score := g.rows[0].score
		if s.o.DoSample || s.o.OutputScores {
			score += c.Score
		}
		g.next = append(g.next, step{token: c.Token, score: score})
		return nil
	}
	if s.o.NumBeamGroups > 1 {
		s.chooseDiverse(g, base, list)
	} else {
		s.chooseBeams(g, base, list)
	}
	return nil
}

// generated is the number of tokens that the rows of a group have.
func (s *State) generated(g *group) int { return len(g.rows[0].tokens) }

// advance makes the rows of the next step from what the groups chose.
func (s *State) advance() {
	var before []float32
	if s.forked {
		before = s.groups[0].scores()
	}
	s.moves = s.moves[:0]
	at := 0
	open := false
	for i := range s.groups {
		g := &s.groups[i]
		if !s.started {
			at = 0
		}
		width := len(g.rows)
		if !g.done {
			s.grow(g)
			s.settle(g)
		}
		if g.done {
			g.rows = g.rows[:0]
		}
		for j := range g.rows {
			s.moves = append(s.moves, Move{Parent: at + g.next[j].parent, Token: g.next[j].token})
			open = true
		}
		at += width
	}
	s.started = true
	if !open {
		s.done = true
		s.finish()
	}
	if s.forked {
		s.weigh(before)
	}
}

// grow replaces a group's rows by their continuations. The last continuation of a row takes its
// memory, the others copy.
func (s *State) grow(g *group) {
	last := make([]int, len(g.rows))
	for j, n := range g.next {
		last[n.parent] = j
	}
	rows := make([]row, len(g.next))
	for j, n := range g.next {
		r := g.rows[n.parent]
		if last[n.parent] != j {
			r.tokens, r.path, r.penalties = clone(r.tokens), clone(r.path), clone(r.penalties)
		}
		r.tokens = append(r.tokens, n.token)
		r.score = n.score
		if s.own != nil {
			r.path = append(r.path, s.nodes)
			s.own.grow(s.sequence(&r), s.nodes)
			s.nodes++
		}
		if s.inPrompt != nil {
			s.penalise(&r, n.token)
		}
		rows[j] = r
	}
	g.rows = rows
}

// clone copies a slice and leaves room to grow.
func clone[T any](from []T) []T {
	if from == nil {
		return nil
	}
	return append(make([]T, 0, len(from)+16), from...)
}

// settle ends a group's sequences that have ended or reached the limit, where choose has not.
func (s *State) settle(g *group) {
	full := len(s.in.Prompt)+s.generated(g) >= s.limit
	switch {
	case s.o.NumBeams == 1:
		r := g.rows[0]
		ended := slices.Contains(s.o.EOSTokenID, g.next[0].token) || s.in.Stopped != nil && s.in.Stopped(r.tokens)
		if ended || full {
			g.found.best = []Hypothesis{{r.tokens, float64(r.score), ended}}
			g.done = true
		}
	case full && s.o.NumBeamGroups > 1:
		s.settleDiverse(g)
	}
}

// finish collects the results.
func (s *State) finish() {
	switch {
	case s.o.NumBeamGroups > 1:
		s.results = ranked(s.groups, s.o.NumReturnSequences)
	case s.o.NumBeams > 1:
		best := s.groups[0].found.best
		s.results = best[:min(len(best), s.o.NumReturnSequences)]
	default:
		for i := range s.groups {
			s.results = append(s.results, s.groups[i].found.best...)
		}
	}
}

func (s *State) sequence(r *row) sequence { return sequence{s.in.Prompt, r.tokens, r.path} }

// step gives the number of tokens that the open rows have generated.
func (s *State) step() int {
	for i := range s.groups {
		if rows := s.groups[i].rows; len(rows) > 0 {
			return len(rows[0].tokens)
		}
	}
	return 0
}
