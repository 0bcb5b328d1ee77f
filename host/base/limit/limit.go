// Package limit holds the bounds of numbers that callers, command lines and configurations give: far above
// what anyone needs, and below what would fill a machine by its size alone.
package limit

// The greatest values.
const (
	Threads    = 1024      // inside an operator
	Workers    = 1024      // goroutines of a stage of a pipeline
	Batch      = 65536     // requests in flight
	Beams      = 1024      // of a request, and sequences that it returns
	Tokens     = 16 << 20  // of a sequence
	Drafts     = 1024      // tokens drafted for a step
	Cache      = 1 << 50   // bytes of a KV cache
	Line       = 1 << 30   // bytes of a line of input
	Config     = 16 << 20  // bytes of a configuration file
	Vocabulary = 256 << 20 // bytes of a tokenizer's file
)

// Text is the maximum of bytes of a text that becomes tokens, where nothing else is asked for.
const Text = 16 << 20

// DefaultLine is the maximum of bytes of a line of input where nothing else is asked for.
const DefaultLine = 1 << 20
