package tune

// settle takes off what can only be noise: a step of fewer positions, beams or
// requests takes no longer than one of more, so no time may stand above that of a
// larger shape.
func (a *Axes) settle(seconds []float64) {
	stride := 1
	lists := a.lists()
	for axis := len(lists) - 1; axis >= 0; axis-- {
		n := len(lists[axis])
		for i := len(seconds) - 1; i >= 0; i-- {
			if i/stride%n < n-1 {
				seconds[i] = min(seconds[i], seconds[i+stride])
			}
		}
		stride *= n
	}
}
