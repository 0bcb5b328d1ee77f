package plan

import "github.com/opgraft/graft/host/onnx/graph"

// Ends are the values that the choice's block or match reads, and those that it makes. None is nil.
func (c *Choice) Ends() (ins, outs []*graph.Value) {
	if c.Match != nil {
		ins, outs = c.Match.ends()
	} else if c.Block != nil {
		ins, outs = ends(c.Block)
	}
	return there(ins), there(outs)
}

func there(list []*graph.Value) (some []*graph.Value) {
	for _, v := range list {
		if v != nil {
			some = append(some, v)
		}
	}
	return some
}
