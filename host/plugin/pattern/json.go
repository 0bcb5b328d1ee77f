package pattern

import (
	"encoding/json"
	"fmt"
	"math"
)

// JSON has no infinities and one kind of number; attributes have both infinities, as a mask's fill is, and
// integers apart from decimals. These types travel as JSON without loss.

// Floats are numbers that JSON shows as numbers, or as "Infinity", "-Infinity" and "NaN".
type Floats []float64

// MarshalJSON writes numbers and the three words.
func (f Floats) MarshalJSON() ([]byte, error) {
	out := make([]any, len(f))
	for i, v := range f {
		out[i] = plainNumber(v)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Floats) UnmarshalJSON(data []byte) error {
	var items []any
	if err := json.Unmarshal(data, &items); err != nil {
		return err
	}
	*f = make(Floats, len(items))
	for i, item := range items {
		v, err := ParseNumber(item)
		if err != nil {
			return err
		}
		(*f)[i] = v
	}
	return nil
}

func plainNumber(v float64) any {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case math.IsNaN(v):
		return "NaN"
	}
	return v
}

// ParseNumber reads a number of JSON, or one of the words that Floats writes.
func ParseNumber(item any) (float64, error) {
	switch v := item.(type) {
	case float64:
		return v, nil
	case string:
		switch v {
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		case "NaN":
			return math.NaN(), nil
		}
	}
	return 0, fmt.Errorf("found %v, needed a number", item)
}

// JSONValue makes an attribute's value fit for JSON.
func JSONValue(value any) any {
	switch v := value.(type) {
	case float64:
		return plainNumber(v)
	case []float64:
		return Floats(v)
	case Capture:
		return "?" + string(v)
	}
	return value
}

// MarshalJSON shows a capture as "?name".
func (a Attribute) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}{a.Name, JSONValue(a.Value)})
}
