// Package random writes ONNX graphs around attention, norms and linear layers from seeds, and compares their answers
// with plugins and without: against ONNX Runtime with its optimisations and without them.
//
// A graph is a stream of hidden states through some layers. Each function of the writer is a rule of the grammar, and
// chooses among forms that exporters write, that nobody writes, and that look like what an operator serves and are not.
// What it makes is valid by construction; ONNX Runtime alone is the judge of that too.
//
// A second grammar is one of encoders: tokens, a mask that hides some of them as keys, and heads that read their
// rows. Their answers are compared in each way in which graft treats padding.
package random
