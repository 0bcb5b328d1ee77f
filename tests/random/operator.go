package random

// operator is attention as ONNX's own operator.
func (w *writer) operator(h heads) value {
	in := []value{h.q, h.k, h.v}
	if w.one(2) {
		full := []dim{w.batch, number(h.count), h.q.dims[2], h.k.dims[2]}
		if w.one(2) {
			in = append(in, w.input("mask", h.q.kind, added(w.hidden(h.q.kind)), full...))
		} else {
			in = append(in, w.input("shown", boolean, shown, full...))
		}
	}
	var attributes []any
	if w.one(2) {
		attributes = append(attributes, "scale", pick(w, 0.25, 1.0))
	}
	if w.one(3) && h.q.dims[2].equal(h.k.dims[2]) {
		attributes = append(attributes, "is_causal", 1)
	}
	if w.one(5) {
		attributes = append(attributes, "softcap", 3.0)
	}
	return w.node("Attention", in, h.q.like(w.batch, number(h.count), h.q.dims[2], number(h.valueSize)), attributes...)
}

// contributed is attention as ONNX Runtime's MultiHeadAttention.
func (w *writer) contributed(x value, h heads) value {
	width := h.count * h.size
	in := []value{w.linear(x, width), w.linear(x, width), w.linear(x, width)}
	attributes := []any{"num_heads", int(h.count)}
	if w.one(3) {
		attributes = append(attributes, "scale", 0.3)
	}
	if w.one(3) {
		attributes = append(attributes, "unidirectional", 1)
	}
	if w.one(2) {
		none := value{}
		bias := none
		if w.one(3) {
			bias = w.weight(0.1, 3*width)
		}
		in = append(in, bias, none)
		if w.one(2) {
			in = append(in, w.input("mask", x.kind, added(w.hidden(x.kind)), pick(w, w.batch, number(1)),
				pick(w, number(h.count), number(1)), x.dims[1], x.dims[1]))
		}
	}
	for len(in) > 0 && in[len(in)-1].name == "" {
		in = in[:len(in)-1]
	}
	o := w.node("com.microsoft/MultiHeadAttention", in, x.like(x.dims[0], x.dims[1], number(width)), attributes...)
	return w.linear(o, x.dims[2].number)
}
