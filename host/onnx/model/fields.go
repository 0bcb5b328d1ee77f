package model

import "google.golang.org/protobuf/encoding/protowire"

// kind names the messages that the scanner walks into.
type kind int

const (
	kindNone kind = iota
	kindModel
	kindGraph
	kindNode
	kindFunction
	kindAttribute
	kindTensor
	kindSparse
	kindValueInfo
	kindType
	kindTensorType
	kindSequence
	kindMap
	kindShape
	kindDim
	kindEntry
	kindOperatorSet
	kindQuantization
)

var kindNames = map[kind]string{
	kindModel: "model", kindGraph: "graph", kindNode: "node", kindFunction: "function",
	kindAttribute: "attribute", kindTensor: "tensor", kindSparse: "sparse tensor",
	kindValueInfo: "value info", kindType: "type", kindTensorType: "tensor type",
	kindSequence: "element type", kindMap: "map type", kindShape: "shape", kindDim: "dimension",
	kindEntry: "metadata entry", kindOperatorSet: "operator set", kindQuantization: "quantization annotation",
}

// form is how a field's value is checked and counted.
type form int

const (
	formMessage form = iota // a message of kind child
	formName                // a string bounded by Limits.NameLength
	formBytes               // a string or bytes of any length
	formVarint              // integers, packed or not
	formFixed32             // floats, packed or not
)

type field struct {
	form   form
	child  kind
	single bool // a second occurrence would merge two tensors into one: refused
}

func message(child kind) field { return field{form: formMessage, child: child} }

var (
	aName   = field{form: formName}
	aBytes  = field{form: formBytes}
	aVarint = field{form: formVarint}
	aFloat  = field{form: formFixed32}
)

// fields lists, by number, the fields that the scanner understands; they are
// those of onnx/onnx.proto. All others pass through untouched.
var fields = map[kind]map[protowire.Number]field{
	kindModel: {
		1: aVarint, 2: aBytes, 3: aBytes, 4: aName, 5: aVarint, 6: aBytes,
		7: message(kindGraph), 8: message(kindOperatorSet), 14: message(kindEntry), 25: message(kindFunction),
	},
	kindGraph: {
		1: message(kindNode), 2: aName, 5: message(kindTensor), 10: aBytes, 11: message(kindValueInfo),
		12: message(kindValueInfo), 13: message(kindValueInfo), 14: message(kindQuantization),
		15: message(kindSparse), 16: message(kindEntry),
	},
	kindNode: {
		1: aName, 2: aName, 3: aName, 4: aName, 5: message(kindAttribute), 6: aBytes, 7: aName, 8: aName,
		9: message(kindEntry),
	},
	kindFunction: {
		1: aName, 4: aName, 5: aName, 6: aName, 7: message(kindNode), 8: aBytes, 9: message(kindOperatorSet),
		10: aName, 11: message(kindAttribute), 12: message(kindValueInfo), 13: aName, 14: message(kindEntry),
	},
	kindAttribute: {
		1: aName, 2: aFloat, 3: aVarint, 4: aBytes,
		5: {form: formMessage, child: kindTensor, single: true}, 6: message(kindGraph),
		7: aFloat, 8: aVarint, 9: aBytes, 10: message(kindTensor), 11: message(kindGraph), 13: aBytes,
		14: message(kindType), 15: message(kindType), 20: aVarint, 21: aName,
		22: {form: formMessage, child: kindSparse, single: true}, 23: message(kindSparse),
	},
	kindSparse: {
		1: {form: formMessage, child: kindTensor, single: true},
		2: {form: formMessage, child: kindTensor, single: true}, 3: aVarint,
	},
	kindValueInfo: {1: aName, 2: message(kindType), 3: aBytes, 4: message(kindEntry)},
	kindType: {1: message(kindTensorType), 4: message(kindSequence), 5: message(kindMap), 6: aName,
		8: message(kindTensorType), 9: message(kindSequence)},
	kindTensorType:   {1: aVarint, 2: message(kindShape)},
	kindSequence:     {1: message(kindType)},
	kindMap:          {1: aVarint, 2: message(kindType)},
	kindShape:        {1: message(kindDim)},
	kindDim:          {1: aVarint, 2: aName, 3: aName},
	kindEntry:        {1: aName, 2: aBytes},
	kindOperatorSet:  {1: aName, 2: aVarint},
	kindQuantization: {1: aName, 2: message(kindEntry)},
}

// Fields of a tensor, which tensor.go reads itself.
const (
	fieldDims         protowire.Number = 1
	fieldDataType     protowire.Number = 2
	fieldFloatData    protowire.Number = 4
	fieldInt32Data    protowire.Number = 5
	fieldStringData   protowire.Number = 6
	fieldInt64Data    protowire.Number = 7
	fieldName         protowire.Number = 8
	fieldRawData      protowire.Number = 9
	fieldDoubleData   protowire.Number = 10
	fieldUint64Data   protowire.Number = 11
	fieldExternalData protowire.Number = 13
	fieldDataLocation protowire.Number = 14
)
