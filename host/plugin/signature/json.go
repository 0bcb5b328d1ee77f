package signature

import (
	"encoding/json"
	"fmt"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// attribute is Attribute with a default that is read by its kind.
type attribute struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Required bool            `json:"required,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
}

// MarshalJSON writes infinite defaults as words.
func (a Attribute) MarshalJSON() ([]byte, error) {
	plain := attribute{Name: a.Name, Kind: a.Kind, Required: a.Required}
	if a.Default != nil {
		var err error
		if plain.Default, err = json.Marshal(manifest.JSONValue(a.Default)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(plain)
}

// UnmarshalJSON gives the default the Go type of its kind.
func (a *Attribute) UnmarshalJSON(data []byte) error {
	var plain attribute
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	*a = Attribute{Name: plain.Name, Kind: plain.Kind, Required: plain.Required}
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
		var f manifest.Floats
		err = json.Unmarshal(plain.Default, &f)
		a.Default = []float64(f)
	case "float":
		var item any
		if item, err = decode[any](plain.Default); err == nil {
			a.Default, err = manifest.ParseNumber(item)
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
