package graph

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// TestInferSequence: what a Loop collected has the shape of its tensors, where these are alike in every iteration and
// nothing else is in the sequence.
func TestInferSequence(t *testing.T) {
	body := func(add string, before ...*onnx.Node) *onnx.Graph {
		return &onnx.Graph{
			Input: []*onnx.ValueInfo{{Name: proto.String("i")}, {Name: proto.String("on")}, {Name: proto.String("d")},
				{Name: proto.String("list")}},
			Node: append(before, node(t, "on2 = Identity(on)", nil), node(t, "d2 = Concat(d, x)", attrs{"axis": 1}),
				node(t, "list2 = "+add, nil)),
			Output: []*onnx.ValueInfo{{Name: proto.String("on2")}, {Name: proto.String("d2")}, {Name: proto.String("list2")}},
		}
	}
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq]"), typed(t, "start", "f32[batch, past]"),
			typed(t, "on0", "bool[]")},
		Initializer: []*onnx.Tensor{Int64Tensor("five", nil, 5)},
		Node: []*onnx.Node{
			node(t, "none = SequenceEmpty()", nil),
			node(t, "some = SequenceConstruct(x)", nil),
			node(t, "n = Size(x)", nil),
			node(t, "a, like = Loop(n, , start, none)", attrs{"body": body("SequenceInsert(list, x)")}),
			node(t, "stacked = ConcatFromSequence(like)", attrs{"axis": -1, "new_axis": 1}),
			node(t, "joined = ConcatFromSequence(like)", attrs{"axis": 1}),
			node(t, "nowhere = ConcatFromSequence(like)", attrs{"axis": 2}),
			node(t, "b, early = Loop(five, on0, start, none)", attrs{"body": body("SequenceInsert(list, x)")}),
			node(t, "some_of = ConcatFromSequence(early)", attrs{"axis": 0, "new_axis": 1}),
			node(t, "c, grows = Loop(five, , start, none)", attrs{"body": body("SequenceInsert(list, d)")}),
			node(t, "growing = ConcatFromSequence(grows)", attrs{"axis": 0}),
			node(t, "e, more = Loop(five, , start, some)", attrs{"body": body("SequenceInsert(list, x)")}),
			node(t, "unlike = ConcatFromSequence(more)", attrs{"axis": 0}),
			node(t, "f, other = Loop(five, , start, none)",
				attrs{"body": body("SequenceInsert(twice, x)", node(t, "twice = SequenceInsert(list, x)", nil))}),
			node(t, "twofold = ConcatFromSequence(other)", attrs{"axis": 0}),
			node(t, "given = ConcatFromSequence(some)", attrs{"axis": 0}),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("stacked")}},
	})
	expect(t, g, s, map[string]string{
		"stacked": "f32[batch, seq, batch*seq]",
		"joined":  "f32[batch, batch*seq*seq]",
		"nowhere": "f32*",
		"some_of": "f32[?, batch, seq]",
		"growing": "f32[batch*5, ?]",
		"unlike":  "?*", "twofold": "?*", "given": "?*",
	})
}
