package main

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
)

// streams reports whether somebody watches texts of one sequence as they are generated: the one of the command line,
// or those of inputs that are typed.
func (o *generation) streams(c *cli, options search.Options) bool {
	watched := len(o.texts)+len(o.images) == 1 || o.reads() == "-" && isTerminal(os.Stdin)
	one := options.NumBeams <= 1 && options.NumReturnSequences <= 1
	return watched && one && o.output == "-" && o.form == "text" && !o.baseline && c.out.terminal()
}

// textStream writes the texts of results as their tokens are chosen, a line each, in the order of the inputs: what
// later inputs have waits for its turn.
type textStream struct {
	out   io.Writer
	begin func() *generate.Incremental

	mu      sync.Mutex
	turn    int // the input whose text is shown
	waiting map[int]*streamedText
	open    bool  // the last line has no end yet
	err     error // of a token or a write, said with the result
}

type streamedText struct {
	text  *generate.Incremental
	ahead string // not shown yet
}

func newTextStream(out io.Writer, begin func() *generate.Incremental) *textStream {
	return &textStream{out: out, begin: begin, waiting: map[int]*streamedText{}}
}

// chosen shows what a token adds to the text of its input.
func (s *textStream) chosen(index int, token int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.textOf(index)
	piece, err := t.text.Add(token)
	s.grow(t, piece, err)
	if index == s.turn {
		s.show(t)
	}
}

// write shows the rest of a result's text, and begins with that of the next.
func (s *textStream) write(r generate.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.textOf(r.Index)
	piece, err := t.text.Finish()
	s.grow(t, piece, err)
	s.show(t)
	s.print("\n")
	delete(s.waiting, r.Index)
	s.turn = r.Index + 1
	if t := s.waiting[s.turn]; t != nil {
		s.show(t)
	}
	return s.err
}

func (s *textStream) textOf(index int) *streamedText {
	if s.waiting[index] == nil {
		s.waiting[index] = &streamedText{text: s.begin()}
	}
	return s.waiting[index]
}

func (s *textStream) grow(t *streamedText, piece string, err error) {
	t.ahead += strings.ReplaceAll(piece, "\t", " ")
	if s.err == nil {
		s.err = err
	}
}

func (s *textStream) show(t *streamedText) {
	s.print(diagnostic.Printable(pipeline.OneLine(t.ahead)))
	t.ahead = ""
}

func (s *textStream) print(text string) {
	if s.err == nil && text != "" {
		_, s.err = io.WriteString(s.out, text)
		s.open = text[len(text)-1] != '\n'
	}
}

// end ends a line whose text was interrupted, so that a message stands on one of its own.
func (s *textStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.print("\n")
	}
}
