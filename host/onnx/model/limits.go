package model

// Limits bounds what a file may ask of the reader. A zero field means its
// default; real models stay far below all of them.
type Limits struct {
	// Inline is the largest payload, in bytes, that is read into the proto;
	// a tensor with more is referred to where it lies. Default 4096.
	Inline int
	// Nodes counts the nodes of all graphs and functions. Default 1,048,576.
	Nodes int
	// Tensors counts initializers and tensors in attributes. Default 1,048,576.
	Tensors int
	// Depth bounds graphs inside graphs, and types inside types. Default 32.
	Depth int
	// Rank bounds the dimensions of a tensor. Default 64.
	Rank int
	// Elements bounds the elements of one tensor. Default 2^40.
	Elements int64
	// NameLength bounds names, operator types and domains, in bytes. Default 65,536.
	NameLength int
	// ExternalFiles counts the files that external data lies in. Default 65,536.
	ExternalFiles int
	// Memory bounds the estimated bytes of everything that is not referred
	// to, decoded. Default 2 GiB.
	Memory int64
}

// DefaultLimits returns the limits that Open and Parse use when given none.
func DefaultLimits() Limits {
	return Limits{
		Inline:        4096,
		Nodes:         1 << 20,
		Tensors:       1 << 20,
		Depth:         32,
		Rank:          64,
		Elements:      1 << 40,
		NameLength:    1 << 16,
		ExternalFiles: 1 << 16,
		Memory:        2 << 30,
	}
}

// effective fills zero fields from the defaults; only the first of given counts.
func effective(given []Limits) Limits {
	l := DefaultLimits()
	if len(given) == 0 {
		return l
	}
	g := given[0]
	pick := func(dst *int, v int) {
		if v > 0 {
			*dst = v
		}
	}
	pick(&l.Inline, g.Inline)
	pick(&l.Nodes, g.Nodes)
	pick(&l.Tensors, g.Tensors)
	pick(&l.Depth, g.Depth)
	pick(&l.Rank, g.Rank)
	pick(&l.NameLength, g.NameLength)
	pick(&l.ExternalFiles, g.ExternalFiles)
	if g.Elements > 0 {
		l.Elements = g.Elements
	}
	if g.Memory > 0 {
		l.Memory = g.Memory
	}
	return l
}
