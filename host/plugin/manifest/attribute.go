package manifest

import "github.com/opgraft/graft/host/plugin/pattern"

// What attributes and patterns are stands in package pattern.
type (
	Pattern   = pattern.Pattern
	Attribute = pattern.Attribute
	Capture   = pattern.Capture
	Floats    = pattern.Floats
)

// ParseNumber reads a number of JSON, or one of the words that Floats writes.
func ParseNumber(item any) (float64, error) { return pattern.ParseNumber(item) }

// JSONValue makes an attribute's value fit for JSON.
func JSONValue(value any) any { return pattern.JSONValue(value) }
