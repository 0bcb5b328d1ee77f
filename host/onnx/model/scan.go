package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// What decoded things take, roughly, for Limits.Memory: a generated message
// with its pointers, a string header with its allocation, one number.
const (
	messageCost = 256
	stringCost  = 24
	numberCost  = 8
)

// walker copies a protobuf message field by field into out and hands every
// tensor in it to the tensor function, which writes what shall stand instead.
// Reading uses it with limits, to leave weights out; writing, to put them back.
type walker struct {
	out    splice
	limits *Limits // nil: the message is our own
	tensor func(at site, in []byte, base int64) error

	nodes, tensors int
	memory         int64
	inFunction     bool
}

// site is where a tensor stands: the kind of the message that holds it, and how
// many graphs are around it, 1 for the main graph.
type site struct {
	parent     kind
	depth      int
	inFunction bool // in the body of a model-local function, however deep
}

// initializer reports whether the tensor is one that may refer to a file:
// attributes and sparse tensors may not, and functions are left as they are.
func (s site) initializer() bool { return s.parent == kindGraph && !s.inFunction }

// message walks the content of one message. base is the offset of in[0] in the
// file; depth counts the graphs and types around it.
func (w *walker) message(k kind, in []byte, base int64, depth int) error {
	table := fields[k]
	seen := uint64(0) // numbers below 64 that came before
	for at := 0; at < len(in); {
		num, typ, n := protowire.ConsumeTag(in[at:])
		if n < 0 {
			return damaged(k, base+int64(at), "a field that cannot be read")
		}
		start := at
		at += n
		f, known := table[num]
		v, n, err := fieldValue(k, num, typ, in[at:], base+int64(at))
		if err != nil {
			return err
		}
		at += n
		if !known {
			if err := w.spend(int64(at - start)); err != nil {
				return err
			}
			w.out.bytes(in[start:at])
			continue
		}
		if err := f.fits(k, num, typ, base+int64(start)); err != nil {
			return err
		}
		if f.single {
			if seen&(1<<num) != 0 {
				return damaged(k, base+int64(start), fmt.Sprintf("field %d twice", num))
			}
			seen |= 1 << num
		}
		if f.form != formMessage {
			if err := w.scalar(k, f, typ, v); err != nil {
				return err
			}
			w.out.bytes(in[start:at])
			continue
		}
		if err := w.enter(f.child); err != nil {
			return err
		}
		inner, below := base+int64(at-len(v)), depth
		if f.child == kindGraph || f.child == kindType {
			below++
			if w.limits != nil && below > w.limits.Depth {
				return &diagnostic.Error{Kind: ErrLimit,
					Found:  fmt.Sprintf("%ss are nested too deeply: found %d levels or more", kindNames[f.child], below),
					Needed: fmt.Sprintf("at most %d", w.limits.Depth), Fix: fixLimit}
			}
		}
		if f.child == kindFunction {
			w.inFunction = true
		}
		err = w.out.nest(num, func() error {
			if f.child == kindTensor {
				return w.tensor(site{k, depth, w.inFunction}, v, inner)
			}
			return w.message(f.child, v, inner, below)
		})
		if f.child == kindFunction {
			w.inFunction = false
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter counts a message about to be walked.
func (w *walker) enter(k kind) error {
	if w.limits == nil {
		return nil
	}
	tooMany := func(what string, limit int) error {
		return &diagnostic.Error{Kind: ErrLimit, Found: fmt.Sprintf("has too many %s: found more than %d", what, limit),
			Needed: fmt.Sprintf("at most %d", limit), Fix: fixLimit}
	}
	switch k {
	case kindNode:
		if w.nodes++; w.nodes > w.limits.Nodes {
			return tooMany("nodes", w.limits.Nodes)
		}
	case kindTensor:
		if w.tensors++; w.tensors > w.limits.Tensors {
			return tooMany("tensors", w.limits.Tensors)
		}
	}
	return w.spend(messageCost)
}

// scalar checks and counts a field that is not a message.
func (w *walker) scalar(k kind, f field, typ protowire.Type, v []byte) error {
	if w.limits == nil {
		return nil
	}
	switch f.form {
	case formName:
		if len(v) > w.limits.NameLength {
			return nameTooLong(kindNames[k], len(v), w.limits)
		}
		return w.spend(int64(len(v)) + stringCost)
	case formBytes:
		return w.spend(int64(len(v)) + stringCost)
	}
	if typ == protowire.BytesType {
		return w.spend(int64(len(v)) * numberCost)
	}
	return w.spend(numberCost)
}

func nameTooLong(of string, length int, limits *Limits) error {
	return &diagnostic.Error{Kind: ErrLimit,
		Found:  fmt.Sprintf("a name in %s is too long: found %d bytes", article(of), length),
		Needed: fmt.Sprintf("at most %d", limits.NameLength), Fix: fixLimit}
}

// spend adds to the estimate of what the decoded structure takes.
func (w *walker) spend(n int64) error {
	if w.limits == nil {
		return nil
	}
	if w.memory += n; w.memory > w.limits.Memory {
		return &diagnostic.Error{Kind: ErrLimit,
			Found:  fmt.Sprintf("needs too much memory apart from its weights: found more than %d bytes", w.limits.Memory),
			Needed: fmt.Sprintf("at most %d", w.limits.Memory), Fix: fixLimit}
	}
	return nil
}

// fits checks the wire type of a field against what the format gives it.
func (f field) fits(k kind, num protowire.Number, typ protowire.Type, at int64) error {
	ok := typ == protowire.BytesType
	switch f.form {
	case formVarint:
		ok = ok || typ == protowire.VarintType
	case formFixed32:
		ok = ok || typ == protowire.Fixed32Type
	}
	if !ok {
		return damaged(k, at, fmt.Sprintf("field %d with wire type %d", num, typ))
	}
	return nil
}

// fieldValue reads the value after a tag: its content without the length for a
// length-delimited field, its encoding for a number, and how far it reaches.
func fieldValue(k kind, num protowire.Number, typ protowire.Type, in []byte, at int64) ([]byte, int, error) {
	switch typ {
	case protowire.BytesType:
		length, n := protowire.ConsumeVarint(in)
		if n < 0 {
			return nil, 0, damaged(k, at, "a length that cannot be read")
		}
		if length > uint64(len(in)-n) {
			return nil, 0, &diagnostic.Error{Kind: ErrDamaged,
				Found: fmt.Sprintf("is truncated or damaged: field %d of %s at byte %d is cut off: found %d bytes", num,
					article(kindNames[k]), at, len(in)-n),
				Needed: fmt.Sprintf("%d", length), Fix: fixDamaged}
		}
		end := n + int(length)
		return in[n:end:end], end, nil
	case protowire.VarintType, protowire.Fixed32Type, protowire.Fixed64Type:
		n := protowire.ConsumeFieldValue(num, typ, in)
		if n < 0 {
			return nil, 0, damaged(k, at, "a number that is cut off")
		}
		return in[:n:n], n, nil
	}
	// Groups are the one construct that nests without lengths; ONNX has none.
	return nil, 0, damaged(k, at, fmt.Sprintf("field %d with wire type %d", num, typ))
}

func damaged(k kind, at int64, found string) error {
	return &diagnostic.Error{Kind: ErrDamaged,
		Found: fmt.Sprintf("is truncated or damaged: %s is broken at byte %d: found %s", article(kindNames[k]), at, found),
		Fix:   fixDamaged}
}

func article(noun string) string {
	if strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
