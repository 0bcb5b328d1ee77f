package plugin

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
		v, err := parseNumber(item)
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

func parseNumber(item any) (float64, error) {
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

// plainValue makes an attribute's value fit for JSON.
func plainValue(value any) any {
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
	}{a.Name, plainValue(a.Value)})
}

// attributeInfo is AttributeInfo with a default that is read by its kind.
type attributeInfo struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Required bool            `json:"required,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
}

// MarshalJSON writes infinite defaults as words.
func (a AttributeInfo) MarshalJSON() ([]byte, error) {
	plain := attributeInfo{Name: a.Name, Kind: a.Kind, Required: a.Required}
	if a.Default != nil {
		var err error
		if plain.Default, err = json.Marshal(plainValue(a.Default)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(plain)
}

// UnmarshalJSON gives the default the Go type of its kind.
func (a *AttributeInfo) UnmarshalJSON(data []byte) error {
	var plain attributeInfo
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*a = AttributeInfo{Name: plain.Name, Kind: plain.Kind, Required: plain.Required}
	if plain.Default == nil {
		return nil
	}
	var err error
	switch a.Kind {
	case "int":
		a.Default, err = decode[int64](plain.Default)
	case "string":
		a.Default, err = decode[string](plain.Default)
	case "ints":
		a.Default, err = decode[[]int64](plain.Default)
	case "floats":
		var f Floats
		err = json.Unmarshal(plain.Default, &f)
		a.Default = []float64(f)
	case "float":
		var item any
		if item, err = decode[any](plain.Default); err == nil {
			a.Default, err = parseNumber(item)
		}
	default:
		err = fmt.Errorf("found the kind %q of attribute %s, needed int, float, string, ints or floats", a.Kind, a.Name)
	}
	return err
}

func decode[T any](data []byte) (T, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}
