package graph

// Draws is a node that draws random numbers without a seed, so that no two sessions of the model need answer alike;
// nil where there is none.
func (g *Graph) Draws() (found *Node) {
	g.Walk(func(n *Node) {
		if n.Is("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli") &&
			n.Attr("seed") == nil {
			found = n
		}
	})
	return found
}
