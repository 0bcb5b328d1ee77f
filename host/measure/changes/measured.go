// Package changes says what changed between two results of graft ab, and whether it is significant.
package changes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
)

// Measured is a result of graft ab: of a model, or of whole generations of a model's folder. The other one is nil.
type Measured struct {
	Result      *comparison.Swept
	Generations *generations.Compared
}

// Environment is where it was measured.
func (m Measured) Environment() comparison.Environment {
	if m.Generations != nil {
		return m.Generations.Environment
	}
	return m.Result.Environment
}

// A is the name of the first side.
func (m Measured) A() string {
	if m.Generations != nil {
		return m.Generations.A.Name
	}
	return m.Result.A.Name
}

// path is that of the model or folder, as it was called.
func (m Measured) path() string {
	if m.Generations != nil {
		return m.Generations.Model
	}
	return m.Result.Model
}

// kind is what was measured, in words.
func (m Measured) kind() string {
	if m.Generations != nil {
		return "whole generations of a model folder"
	}
	return "a model"
}

// cells are the sizes of a result, and parts of runs, by their words.
type cells struct {
	keys []string
	at   map[string]*cell
}

// cell is what A and the sides took, in milliseconds.
type cell struct {
	a     []float64
	sides []timed
}

type timed struct {
	name    string
	ms      []float64
	speedup statistics.Speedup
}

// side is the one of a name; nil for none.
func (c *cell) side(name string) *timed {
	for i := range c.sides {
		if c.sides[i].name == name {
			return &c.sides[i]
		}
	}
	return nil
}

// Parts of a generation. They are shown and not required: a generation is as fast as the whole of it.
const (
	firstToken  = "to the first token"
	decodeSteps = "decode steps"
)

// isPart says whether a cell is a part of a run, and not the whole.
func isPart(key string) bool { return key == firstToken || key == decodeSteps }

func (c *cells) add(key string, of *cell) { c.keys, c.at[key] = append(c.keys, key), of }

func (m Measured) cells() *cells {
	list := &cells{at: map[string]*cell{}}
	if g := m.Generations; g != nil {
		list.generations(g)
		return list
	}
	for i := range m.Result.Cells {
		of := &m.Result.Cells[i]
		c := &cell{a: of.A.TimesMS}
		for _, s := range of.Sides {
			c.sides = append(c.sides, timed{s.Name, s.TimesMS, s.Speedup})
		}
		list.add(lengths(of), c)
	}
	return list
}

// lengths are those of a cell in words.
func lengths(c *comparison.Cell) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.Lengths)) {
		words = append(words, fmt.Sprintf("%s=%d", name, c.Lengths[name]))
	}
	return strings.Join(words, " ")
}

// generations adds whole runs and their parts.
func (c *cells) generations(g *generations.Compared) {
	for _, part := range []struct {
		key string
		ms  func(*generations.Side) []float64
	}{
		{"", func(s *generations.Side) []float64 { return thousandfold(s.Seconds, nil) }},
		{firstToken, func(s *generations.Side) []float64 { return thousandfold(s.TTFTSeconds, nil) }},
		{decodeSteps, func(s *generations.Side) []float64 { return thousandfold(s.Seconds, s.TTFTSeconds) }},
	} {
		of := &cell{a: part.ms(&g.A)}
		least := slices.Min(of.a)
		for i := range g.Sides {
			b := &g.Sides[i]
			s := timed{b.Name, part.ms(&b.Side), b.Speedup}
			least = min(least, slices.Min(s.ms))
			if isPart(part.key) && least > 0 {
				s.speedup = statistics.SpeedupOf(of.a, s.ms)
			}
			of.sides = append(of.sides, s)
		}
		if part.key == "" || least > 0 { // of one new token no step is left
			c.add(part.key, of)
		}
	}
}

// thousandfold are seconds in milliseconds, less those of another list.
func thousandfold(seconds, less []float64) []float64 {
	list := make([]float64, len(seconds))
	for i, s := range seconds {
		if less != nil {
			s -= less[i]
		}
		list[i] = 1e3 * s
	}
	return list
}

// named are the sides of a cell that the other result lacks.
func (c *cells) named(key string) (list []string) {
	for _, s := range c.at[key].sides {
		list = append(list, label(key, s.name))
	}
	return list
}
