// Package generate holds what Hugging Face's generate answers on the small models
// of models/small, and the tests that hold graft against it.
//
// The answers are made by expected.py (its head says how), one file a model under
// testdata. [Load] reads them; [Case] holds the question and the answer.
package generate
