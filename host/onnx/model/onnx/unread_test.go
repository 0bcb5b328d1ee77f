package onnx

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestUnread: of each operator that is read, an attribute, an input and a definition that are not known leave a node
// alone, with what they are as the reason.
func TestUnread(t *testing.T) {
	for op, r := range read {
		domain, name, found := strings.Cut(op, "com.microsoft.")
		domain = "com.microsoft"
		if !found {
			domain, name = "", op
		}
		for _, version := range r.versions {
			node := func() *Node {
				n := &Node{OpType: proto.String(name), Domain: proto.String(domain)}
				for range r.inputs {
					n.Input = append(n.Input, "x")
				}
				return n
			}
			n := node()
			if why := Unread(n, n.GetInput(), version); why != "" {
				t.Errorf("%s %d: %s", op, version, why)
			}
			n.Input = append(n.Input, "")
			if why := Unread(n, n.GetInput(), version); why != "" {
				t.Errorf("%s %d with an input left out: %s", op, version, why)
			}
			n.Input = append(n.Input, "more")
			if why := Unread(n, n.GetInput(), version); !strings.Contains(why, "more, is not known") {
				t.Errorf("%s %d with a further input: %q", op, version, why)
			}
			n = node()
			n.Attribute = []*Attribute{{Name: proto.String("newest"), Type: Attribute_INT.Enum(), I: proto.Int64(1)}}
			if why := Unread(n, n.GetInput(), version); why != "its attribute newest is not known" {
				t.Errorf("%s %d with a further attribute: %q", op, version, why)
			}
			newer, want := int64(NewestOpset+1), "its opset 29 is newer than 28"
			if domain != "" {
				newer, want = 2, "version 2 of com.microsoft is not known"
			}
			if why := Unread(node(), node().GetInput(), newer); !strings.Contains(why, want) {
				t.Errorf("%s of version %d: %q", op, newer, why)
			}
		}
	}
	for _, c := range []struct {
		op        string
		version   int64
		attribute *Attribute
		want      string
	}{
		{"Attention", 25, integer("left_window_size", 2), "left_window_size is 2, of which -1 alone is known"},
		{"Attention", 25, integer("left_window_size", -1), ""},
		{"com.microsoft.GroupQueryAttention", 1, word("k_quant_type", "NONE"), ""},
		{"com.microsoft.GroupQueryAttention", 1, word("k_quant_type", "PER_TENSOR"), "is PER_TENSOR, of which NONE"},
		{"com.microsoft.GroupQueryAttention", 1, integer("causal", 0), "causal is 0"},
		{"com.microsoft.RotaryEmbedding", 1, integer("is_packed_batching", 1), "is_packed_batching is 1"},
		{"com.microsoft.MatMulNBits", 1, integer("weight_prepacked", 1), "weight_prepacked is 1"},
		{"MatMul", 13, integer("axis", 1), "its attribute axis is not known"}, // by its schema
		{"MatMul", 29, nil, "its opset 29 is newer"},
		{"Split", 18, integer("axis", 1), ""},
		{"somebody.Else", 7, integer("axis", 1), ""},
	} {
		at := strings.LastIndex(c.op, ".")
		n := &Node{OpType: proto.String(c.op[at+1:]), Domain: proto.String(c.op[:max(at, 0)])}
		if c.attribute != nil {
			n.Attribute = []*Attribute{c.attribute}
		}
		if why := Unread(n, n.GetInput(), c.version); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s %d: %q, want %q", c.op, c.version, why, c.want)
		}
	}
}

func integer(name string, x int64) *Attribute {
	return &Attribute{Name: proto.String(name), Type: Attribute_INT.Enum(), I: proto.Int64(x)}
}

func word(name, x string) *Attribute {
	return &Attribute{Name: proto.String(name), Type: Attribute_STRING.Enum(), S: []byte(x)}
}

// TestUnreadDefinitions: of ONNX's own operators all definitions up to the newest operator set are known, or are
// those that leave a node alone; a new one is read, and then named, by a person.
func TestUnreadDefinitions(t *testing.T) {
	newest := int64(0)
	for op, versions := range schemas() {
		for _, s := range versions {
			newest = max(newest, s.Since)
			if why := Unread(&Node{OpType: proto.String(op)}, nil, s.Since); why != "" {
				t.Errorf("%s of opset %d: %s", op, s.Since, why)
			}
		}
	}
	if newest != NewestOpset {
		t.Errorf("the newest operator set is %d, not %d", newest, NewestOpset)
	}
}
