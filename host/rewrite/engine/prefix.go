package engine

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// afterPromptLengths are those of as many tokens as there are after a prompt of one.
func (s *builder) afterPromptLengths() Lengths {
	return Lengths{Past: 1, New: s.Positions - 1, Encoder: 1}
}

// afterPrompt are the lines of a table for tokens that follow a prompt, by position; the first, which none of them
// has, is that of a prompt. A model whose prompts see all of themselves may say otherwise what they are, as UniLM
// does by segments. The placeholder after a prompt is such a token, too.
func (s *builder) afterPrompt(v *graph.Value, whole *Evaluated, line int64) ([]float32, error) {
	values, err := s.Answers.of(Question{[]string{v.Name}, s.afterPromptLengths()})
	if err != nil {
		return nil, err
	}
	if n := int64(len(values[0].Data)); n != (s.Positions-1)*line {
		return nil, fmt.Errorf("it has %d numbers for %d tokens after a past of one, and %d for each of a prompt", n,
			s.Positions-1, line)
	}
	return append(whole.Data[:line:line], values[0].Data...), nil
}

// lineRows is the input of lines.
func (s *builder) lineRows() (*graph.Value, error) {
	s.engine.Lines = true
	return s.input(LinesInput, onnx.Tensor_INT64, rowsSymbol)
}
