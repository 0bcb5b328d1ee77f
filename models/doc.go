// Package models holds the graphs that real exporters wrote, without their
// learned weights, and fills them from a seed.
//
// A fixture is an exporter's own ModelProto, gzipped under graphs/. Each learned
// tensor has no data but an instruction in its external_data (location "seed")
// that says of which parameters it is made and how these are distributed; masks,
// rotary tables and shape constants stand as the exporter wrote them. The same
// parameter has the same values for the same seed in every fixture of a subject,
// so GPT-2 as optimum drew it and GPT-2 as ONNX Runtime's optimizer fused it
// must agree.
//
// [Fixtures] lists what stands here, [Fixture.Write] fills one into a file, and
// [Build] makes a full-size subject (all its files and config.json).
package models
