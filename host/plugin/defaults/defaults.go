// Package defaults names what the host reaches for in graft's own plugins where the caller
// named nothing else. No other package of the host knows a plugin by its name.
package defaults

// Operator is an operator of a plugin.
type Operator struct {
	Plugin string `json:"plugin"`
	Name   string `json:"operator"`
}

// Operators that attend over the standard KV-cache strategies of abi/README.md.
var (
	KeysValues         = Operator{"flash-decode", "CachedAttention"}
	PromptHiddenStates = Operator{"el-attention", "ELAttention"}
	Keys               = Operator{"slim-attention", "KeyAttention"}
	HiddenStates       = Operator{"slim-attention", "InputAttention"}
)

// Operators that store whole sequences for them: what an encoder made.
var (
	StoreKeysValues   = Operator{"flash-decode", "StoreCache"}
	StoreHiddenStates = Operator{"el-attention", "StoreRows"}
	StoreKeys         = Operator{"slim-attention", "StoreRows"}
)

// Operators that multiply with constant weights, and that lay these out in panels.
var (
	Linear = Operator{"packed-linear", "PackedLinear"}
	Panels = Operator{"packed-linear", "PackPanels"}
)

// Operators of models in eight bits: one multiplies integers with constant weights, several at once, and one is
// attention between such products, with the bits of ONNX Runtime's separate nodes.
var (
	IntegerLinear     = Operator{"quantized-linear", "QuantizedLinear"}
	NodewiseAttention = Operator{"quantized-linear", "NodewiseAttention"}
)

// Operators that take hidden tokens out of a batch, attend within its sequences, and put rows back.
var (
	RemovePadding   = Operator{"remove-padding", "RemovePadding"}
	PackedAttention = Operator{"remove-padding", "PackedAttention"}
	RestorePadding  = Operator{"remove-padding", "RestorePadding"}
)
