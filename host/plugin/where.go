package plugin

// Where is a conjunction of constraints over the facts of a block or a match, in the order of the file.
type Where []Constraint

// Constraint bounds one fact: exactly one of OneOf and (Min, Max) is set.
type Constraint struct {
	Fact string `json:"fact"`
	// OneOf holds the allowed values: string, bool, int64 or float64. A scalar in the file is a list of
	// one.
	OneOf []any    `json:"one_of,omitempty"`
	Min   *float64 `json:"min,omitempty"` // inclusive
	Max   *float64 `json:"max,omitempty"` // inclusive

	line int
}
