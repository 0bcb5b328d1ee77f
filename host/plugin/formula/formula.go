// Package formula reads expressions over the elements of tensors, as conformance cases have them.
package formula

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// function computes one element from the inputs' elements.
type function func(value func(name string) float64) float64

// functions are the functions that an expression can call, with one or two arguments.
var functions = map[string]any{
	"abs": math.Abs, "cos": math.Cos, "erf": math.Erf, "exp": math.Exp, "log": math.Log, "sin": math.Sin,
	"sqrt": math.Sqrt, "tanh": math.Tanh, "min": math.Min, "max": math.Max,
}

// Formula is a parsed expression and the inputs that it names.
type Formula struct {
	Compute function
	Inputs  []string
}

// Parse reads an expression. Precedence, from loose to tight: + and -, * and /, unary -, ^ (to the
// right).
func Parse(text string) (*Formula, error) {
	p := &parser{text: text}
	f, err := p.sum()
	if err == nil && p.peek() != 0 {
		err = p.unexpected("an operator or the end")
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(p.inputs)
	return &Formula{Compute: f, Inputs: slices.Compact(p.inputs)}, nil
}

type parser struct {
	text   string
	at     int
	depth  int
	inputs []string
}

// peek skips blanks and gives the next byte, 0 at the end.
func (p *parser) peek() byte {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) unexpected(need string) error {
	found := "the end"
	if c := p.peek(); c != 0 {
		found = strconv.Quote(string(rune(c)))
	}
	return fmt.Errorf("found %s at byte %d, needed %s", found, p.at+1, need)
}

func (p *parser) sum() (function, error)     { return p.left("+-", p.product) }
func (p *parser) product() (function, error) { return p.left("*/", p.unary) }

// left reads operators that group to the left.
func (p *parser) left(operators string, operand func() (function, error)) (function, error) {
	a, err := operand()
	for err == nil && p.peek() != 0 && strings.IndexByte(operators, p.peek()) >= 0 {
		operator := p.peek()
		p.at++
		var b function
		if b, err = operand(); err != nil {
			break
		}
		first := a
		a = map[byte]function{
			'+': func(v func(string) float64) float64 { return first(v) + b(v) },
			'-': func(v func(string) float64) float64 { return first(v) - b(v) },
			'*': func(v func(string) float64) float64 { return first(v) * b(v) },
			'/': func(v func(string) float64) float64 { return first(v) / b(v) },
		}[operator]
	}
	return a, err
}

func (p *parser) unary() (function, error) {
	const limit = 50
	if p.depth++; p.depth > limit {
		return nil, fmt.Errorf("found more than %d levels, needed fewer", limit)
	}
	defer func() { p.depth-- }()
	if p.peek() == '-' {
		p.at++
		a, err := p.unary()
		return func(v func(string) float64) float64 { return -a(v) }, err
	}
	a, err := p.operand()
	if err != nil || p.peek() != '^' {
		return a, err
	}
	p.at++
	b, err := p.unary()
	return func(v func(string) float64) float64 { return math.Pow(a(v), b(v)) }, err
}

func (p *parser) operand() (function, error) {
	c := p.peek()
	start := p.at
	letter := func(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
	digit := func(c byte) bool { return c >= '0' && c <= '9' || c == '.' }
	switch {
	case c == '(':
		p.at++
		a, err := p.sum()
		if err == nil && p.peek() != ')' {
			err = p.unexpected("a closing parenthesis")
		}
		p.at++
		return a, err
	case digit(c):
		for p.at < len(p.text) && (digit(p.text[p.at]) || p.text[p.at]|0x20 == 'e' ||
			strings.IndexByte("+-", p.text[p.at]) >= 0 && p.text[p.at-1]|0x20 == 'e') {
			p.at++
		}
		number, err := strconv.ParseFloat(p.text[start:p.at], 64)
		if err != nil {
			return nil, fmt.Errorf("found %q at byte %d, needed a number", diagnostic.Clip(p.text[start:p.at]), start+1)
		}
		return func(func(string) float64) float64 { return number }, nil
	case letter(c):
		for p.at < len(p.text) && (letter(p.text[p.at]) || digit(p.text[p.at]) && p.text[p.at] != '.') {
			p.at++
		}
		name := p.text[start:p.at]
		if p.peek() == '(' {
			return p.call(name, start)
		}
		if name == "pi" {
			return func(func(string) float64) float64 { return math.Pi }, nil
		}
		p.inputs = append(p.inputs, name)
		return func(v func(string) float64) float64 { return v(name) }, nil
	}
	return nil, p.unexpected("a number, an input, a function or a parenthesis")
}

func (p *parser) call(name string, start int) (function, error) {
	called, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("found the function %s at byte %d, needed one of %s", diagnostic.Clip(name), start+1,
			strings.Join(slices.Sorted(maps.Keys(functions)), ", "))
	}
	var arguments []function
	for separator := byte('('); p.peek() == separator; separator = ',' {
		p.at++
		a, err := p.sum()
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, a)
	}
	if p.peek() != ')' {
		return nil, p.unexpected("a closing parenthesis")
	}
	p.at++
	switch f := called.(type) {
	case func(float64) float64:
		if len(arguments) == 1 {
			return func(v func(string) float64) float64 { return f(arguments[0](v)) }, nil
		}
		return nil, fmt.Errorf("found %d arguments of %s at byte %d, needed 1", len(arguments), name, start+1)
	case func(x, y float64) float64:
		if len(arguments) == 2 {
			return func(v func(string) float64) float64 { return f(arguments[0](v), arguments[1](v)) }, nil
		}
	}
	return nil, fmt.Errorf("found %d arguments of %s at byte %d, needed 2", len(arguments), name, start+1)
}
