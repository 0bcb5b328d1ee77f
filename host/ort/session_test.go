package ort

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/model/onnx"
)

// identity is the model y = x of one type.
func identity(element ElementType, dims ...any) *onnx.Model {
	return model(&onnx.Graph{
		Node:   []*onnx.Node{node("Identity", []string{"x"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{value("x", tensorType(element, dims...))},
		Output: []*onnx.ValueInfo{value("y", tensorType(element, dims...))},
	})
}

// through sends a tensor through the identity model and gives what comes out.
func through(t *testing.T, in *Value, err error, element ElementType, dims ...any) *Value {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	s := session(t, marshal(t, identity(element, dims...)), SessionOptions{})
	out, err := s.Run(context.Background(), map[string]*Value{"x": in})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out[0].Close)
	if out[0].Element() != element || out[0].Kind() != KindTensor || !slices.Equal(out[0].Shape(), in.Shape()) {
		t.Errorf("in: %v %v, out: %v of %v %v", element, in.Shape(), out[0].Kind(), out[0].Element(), out[0].Shape())
	}
	return out[0]
}

func roundTrip[T Element](t *testing.T, data ...T) {
	t.Helper()
	in, err := NewTensor(library, []int64{int64(len(data)), 1}, data)
	out := through(t, in, err, elementTypeOf[T](), "n", 1)
	if found, err := Data[T](out); err != nil || !slices.Equal(found, data) {
		t.Errorf("%v: got %v (%v), want %v", elementTypeOf[T](), found, err, data)
	}
}

func TestTensorsOfGoTypes(t *testing.T) {
	roundTrip[float32](t, 1.5, -2)
	roundTrip[float64](t, 1.5, -2)
	roundTrip[int8](t, -128, 127)
	roundTrip[int16](t, -32768, 5)
	roundTrip[int32](t, -1<<31, 7)
	roundTrip[int64](t, -1<<63, 9)
	roundTrip[uint8](t, 255, 0, 1)
	roundTrip[uint16](t, 65535)
	roundTrip[uint32](t, 1<<32-1)
	roundTrip[uint64](t, 1<<64-1)
	roundTrip(t, true, false)
	roundTrip[float32](t) // empty
}

func TestTensorsOfBytes(t *testing.T) {
	for _, c := range []struct {
		element  ElementType
		elements int64
		data     []byte
	}{
		{Float16, 2, []byte{0, 0x3c, 0, 0xc0}},
		{BFloat16, 1, []byte{0x80, 0x3f}},
		{Bool, 3, []byte{1, 0, 1}},
		{Float8E4M3FN, 1, []byte{0x38}},
		{Float32, 1, []byte{0, 0, 0x80, 0x3f}},
	} {
		in, err := library.NewTensorBytes(c.element, []int64{c.elements}, c.data)
		m := identity(c.element, "n")
		m.IrVersion, m.OpsetImport[0].Version = proto.Int64(10), proto.Int64(21)
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		s, err := library.NewSessionFromBytes(marshal(t, m), SessionOptions{})
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		out, err := s.Run(context.Background(), map[string]*Value{"x": in})
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		if found, err := out[0].Bytes(); err != nil || !slices.Equal(found, c.data) {
			t.Errorf("%v: got % x (%v), want % x", c.element, found, err, c.data)
		}
		closeAll(out)
		in.Close()
		s.Close()
	}
	// Two elements a byte; ONNX Runtime has no Identity for them.
	packed, err := library.NewTensorBytes(Int4, []int64{3}, []byte{0x21, 0x03})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := packed.Bytes(); err != nil || !slices.Equal(found, []byte{0x21, 0x03}) || packed.Element() != Int4 {
		t.Errorf("int4: got %v % x (%v)", packed.Element(), found, err)
	}
	half, err := library.NewTensorBytes(Float16, []int64{1}, []byte{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if bits, err := Data[uint16](half); err != nil || bits[0] != 0x0201 {
		t.Errorf("float16 as uint16: %x, %v", bits, err)
	}
}

func TestTensorsOfAllTypes(t *testing.T) {
	for e := Float32; e <= Float8E8M0; e++ {
		if e == Complex64 || e == Complex128 {
			continue // ONNX Runtime has no such tensors
		}
		v, err := library.Allocate(e, []int64{7})
		if err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		if v.Element() != e {
			t.Errorf("a tensor of %v says that it is of %v", e, v.Element())
		}
		v.Close()
	}
}

func TestTensorsOfStrings(t *testing.T) {
	want := []string{"past", "", "présent"}
	in, err := library.NewStrings([]int64{3}, want)
	out := through(t, in, err, String, "n")
	if found, err := out.Strings(); err != nil || !slices.Equal(found, want) {
		t.Errorf("got %q (%v), want %q", found, err, want)
	}
	if _, err := out.Bytes(); err == nil || !strings.Contains(err.Error(), "string cannot be viewed as bytes") {
		t.Errorf("bytes of strings: %v", err)
	}
}

func TestTensorErrors(t *testing.T) {
	good, err := NewTensor(library, []int64{2}, []float32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		do   func() error
		want string
	}{
		{"too few elements", func() error { _, err := NewTensor(library, []int64{2, 3}, make([]float32, 5)); return err },
			"a tensor of type float32 and shape [2 3] takes 24 bytes, 20 were given"},
		{"negative dimension", func() error { _, err := NewTensor(library, []int64{2, -3}, make([]float32, 6)); return err },
			"dimension 1 is -3"},
		{"overflow", func() error {
			_, err := NewTensor(library, []int64{1 << 32, 1 << 32}, []uint8{})
			return err
		}, "too many elements"},
		{"strings as bytes", func() error { _, err := library.NewTensorBytes(String, []int64{1}, []byte{1}); return err },
			"no fixed width"},
		{"wrong view", func() error { _, err := Data[int64](good); return err }, "a tensor of float32 cannot be viewed as int64"},
		{"not strings", func() error { _, err := good.Strings(); return err }, "a tensor of strings is needed"},
		{"not a sequence", func() error { _, err := good.Items(); return err }, "the value is a tensor, a sequence is needed"},
		{"number of strings", func() error { _, err := library.NewStrings([]int64{2}, []string{"a"}); return err }, "shape [2] has 2 elements, 1 strings"},
		{"closed", func() error { good.Close(); good.Close(); _, err := good.Bytes(); return err }, "used after Close"},
	}
	for _, c := range cases {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestSessionDescribes(t *testing.T) {
	s := session(t, marshal(t, identity(Int64, "batch", 3, nil)), SessionOptions{})
	if in := s.Inputs(); len(in) != 1 || in[0].String() != "x: int64[batch, 3]" {
		t.Errorf("inputs %v", in)
	}
	s = session(t, marshal(t, sequence()), SessionOptions{})
	if out := s.Outputs(); len(out) != 1 || out[0].Kind != KindSequence || out[0].String() != "y: sequence" {
		t.Errorf("outputs %v", out)
	}
}

// sequence is the model y = [x, x].
func sequence() *onnx.Model {
	m := identity(Float32, "n")
	m.Graph.Node = []*onnx.Node{node("SequenceConstruct", []string{"x", "x"}, []string{"y"})}
	m.Graph.Output = []*onnx.ValueInfo{value("y", &onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{
		ElemType: tensorType(Float32, "n")}}})}
	return m
}

func TestSequenceOutput(t *testing.T) {
	s := session(t, marshal(t, sequence()), SessionOptions{})
	x, err := NewTensor(library, []int64{2}, []float32{3, 4})
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(context.Background(), map[string]*Value{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(out)
	if _, err := out[0].Bytes(); err == nil || !strings.Contains(err.Error(), "the value is a sequence, a tensor is needed") {
		t.Errorf("bytes of a sequence: %v", err)
	}
	items, err := out[0].Items()
	if err != nil || len(items) != 2 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	defer closeAll(items)
	y, _ := Data[float32](items[1])
	expect(t, "second item", y, 3, 4)
}

// TestEmptyOptional takes an optional without content from one model to another, where it would
// end the process.
func TestEmptyOptional(t *testing.T) {
	kind := &onnx.Type{Value: &onnx.Type_OptionalType{OptionalType: &onnx.Type_Optional{ElemType: tensorType(Float32, "n")}}}
	m := identity(Float32, "n")
	m.Graph.Input = nil
	none := node("Optional", nil, []string{"y"})
	none.Attribute = []*onnx.Attribute{{Name: proto.String("type"), Type: onnx.Attribute_TYPE_PROTO.Enum(), Tp: tensorType(Float32, "n")}}
	m.Graph.Node = []*onnx.Node{none}
	m.Graph.Output = []*onnx.ValueInfo{value("y", kind)}
	out, err := session(t, marshal(t, m), SessionOptions{}).Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(out)
	if out[0].Kind() != KindOptional {
		t.Errorf("an optional without content is a %v", out[0].Kind())
	}
	if _, err := out[0].Bytes(); err == nil || !strings.Contains(err.Error(), "the value is a optional, a tensor is needed") {
		t.Errorf("bytes of nothing: %v", err)
	}

	m = identity(Bool)
	m.Graph.Input = []*onnx.ValueInfo{value("x", kind)}
	m.Graph.Node = []*onnx.Node{node("OptionalHasElement", []string{"x"}, []string{"y"})}
	s := session(t, marshal(t, m), SessionOptions{})
	_, err = s.Run(context.Background(), map[string]*Value{"x": out[0]})
	if err == nil || !strings.Contains(err.Error(), `input "x": an optional without content cannot be fed`) {
		t.Errorf("feeding nothing: %v", err)
	}
}

func TestNewSequence(t *testing.T) {
	m := identity(Float32, "n")
	kind := &onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{ElemType: tensorType(Float32, "n")}}}
	m.Graph.Input = []*onnx.ValueInfo{value("x", kind)}
	m.Graph.Output = []*onnx.ValueInfo{value("y", kind)}
	m.Graph.Node = []*onnx.Node{node("Identity", []string{"x"}, []string{"y"})}
	s := session(t, marshal(t, m), SessionOptions{})
	data := []float32{3, 4}
	item, err := NewTensor(library, []int64{2}, data)
	if err != nil {
		t.Fatal(err)
	}
	x, err := library.NewSequence([]*Value{item, item})
	if err != nil {
		t.Fatal(err)
	}
	item.Close()
	data[0] = 5 // the sequence has copies
	out, err := s.Run(context.Background(), map[string]*Value{"x": x})
	x.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(out)
	items, err := out[0].Items()
	if err != nil || len(items) != 2 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	defer closeAll(items)
	y, _ := Data[float32](items[1])
	expect(t, "second item", y, 3, 4)

	words, err := library.NewStrings([]int64{1}, []string{"word"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := library.NewSequence([]*Value{words})
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if items, err := text.Items(); err != nil || len(items) != 1 {
		t.Errorf("a sequence of strings has %d items, %v", len(items), err)
	} else if list, err := items[0].Strings(); err != nil || list[0] != "word" {
		t.Errorf("a sequence of strings holds %q, %v", list, err)
	}

	if _, err := library.NewSequence(nil); err == nil || !strings.Contains(err.Error(), "at least one tensor, none was given") {
		t.Errorf("an empty sequence: %v", err)
	}
	if _, err := library.NewSequence([]*Value{item}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed item: %v", err)
	}
	if _, err := library.NewSequence([]*Value{words, items[0]}); err == nil {
		t.Error("a sequence of two element types was made")
	}
}

func TestRunErrors(t *testing.T) {
	s := session(t, marshal(t, unary("Relu")), SessionOptions{})
	x, err := NewTensor(library, []int64{1}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	closed, err := NewTensor(library, []int64{1}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	wrong, err := NewTensor(library, []int64{1}, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		ctx     context.Context
		inputs  map[string]*Value
		outputs []string
		want    string
	}{
		{"unknown input", ctx, map[string]*Value{"q": x}, nil, `no input or output "q": it has inputs [x: float32[n]]`},
		{"unknown output", ctx, map[string]*Value{"x": x}, []string{"z"}, `no input or output "z"`},
		{"missing input", ctx, map[string]*Value{}, nil, "onnxruntime: Run: "},
		{"wrong type", ctx, map[string]*Value{"x": wrong}, nil, "Unexpected input data type"},
		{"closed input", ctx, map[string]*Value{"x": closed}, nil, `input "x": onnxruntime: used after Close`},
		{"ended context", ended, map[string]*Value{"x": x}, nil, "context canceled"},
	} {
		if _, err := s.Run(c.ctx, c.inputs, c.outputs...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	s.Close()
	s.Close()
	if _, err := s.Run(ctx, map[string]*Value{"x": x}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed session: %v", err)
	}
	if _, err := s.NewBinding(); !errors.Is(err, ErrClosed) {
		t.Errorf("binding of a closed session: %v", err)
	}
}

// endless is a model that loops 2^62 times.
func endless() *onnx.Model {
	body := &onnx.Graph{Name: proto.String("body"),
		Node:   []*onnx.Node{node("Identity", []string{"go"}, []string{"go_on"}), node("Identity", []string{"v"}, []string{"w"})},
		Input:  []*onnx.ValueInfo{value("i", tensorType(Int64)), value("go", tensorType(Bool)), value("v", tensorType(Float32, "n"))},
		Output: []*onnx.ValueInfo{value("go_on", tensorType(Bool)), value("w", tensorType(Float32, "n"))}}
	m := identity(Float32, "n")
	m.Graph.Node = []*onnx.Node{node("Loop", []string{"trips", "", "x"}, []string{"y"},
		&onnx.Attribute{Name: proto.String("body"), Type: onnx.Attribute_GRAPH.Enum(), G: body})}
	m.Graph.Initializer = []*onnx.Tensor{{Name: proto.String("trips"), DataType: proto.Int32(int32(Int64)), Int64Data: []int64{1 << 62}}}
	return m
}

// TestRunEndsWithContext: a run that would take forever ends when its context does.
func TestRunEndsWithContext(t *testing.T) {
	s := session(t, marshal(t, endless()), SessionOptions{})
	x, err := NewTensor(library, []int64{1}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, map[string]*Value{"x": x}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	var refusal *Error
	b, err := s.NewBinding()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel2 := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel2()
	if err := errors.Join(b.Input("x", x), b.OutputTo("y", cpu(t))); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refusal) {
		t.Errorf("binding: got %v, want the context's error and ONNX Runtime's", err)
	}
}

func cpu(t testing.TB) *Memory {
	t.Helper()
	m, err := library.Memory("Cpu", 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRunInto: results land in the caller's memory.
func TestRunInto(t *testing.T) {
	s := session(t, marshal(t, unary("Neg")), SessionOptions{})
	x, y := []float32{1, 2}, make([]float32, 2)
	in, err1 := NewTensor(library, []int64{2}, x)
	out, err2 := NewTensor(library, []int64{2}, y)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		x[0] = float32(i)
		if err := s.RunInto(context.Background(), map[string]*Value{"x": in}, []string{"y"}, []*Value{out}); err != nil {
			t.Fatal(err)
		}
		expect(t, "y", y, float32(-i), -2)
	}
	if err := s.RunInto(context.Background(), nil, []string{"y"}, nil); err == nil || !strings.Contains(err.Error(), "0 places for 1 outputs") {
		t.Errorf("no places: %v", err)
	}
}

// TestBinding: runs reuse memory, and an output becomes the next input without a copy.
func TestBinding(t *testing.T) {
	w := &onnx.Tensor{Name: proto.String("w"), DataType: proto.Int32(int32(Float32)), Dims: []int64{2}, RawData: rawFloats(1, 10)}
	s := session(t, marshal(t, sum(w)), SessionOptions{})
	b, err := s.NewBinding()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	buffers := [2][]float32{{0, 0}, {0, 0}}
	var values [2]*Value
	for i := range values {
		if values[i], err = NewTensor(library, []int64{2}, buffers[i]); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 4 {
		from, to := values[step%2], values[1-step%2]
		if err := errors.Join(b.Input("x", from), b.Output("y", to), b.Run(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "after four steps", buffers[0], 4, 40)

	if err := b.OutputTo("y", cpu(t)); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	outputs, err := b.Outputs()
	if err != nil {
		t.Fatal(err)
	}
	y, err := Data[float32](outputs["y"])
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "allocated output", y, 4, 40)
	if device, id, err := outputs["y"].Device(); err != nil || device != DeviceCPU || id != 0 {
		t.Errorf("device %v %d, %v", device, id, err)
	}
	outputs["y"].Close()

	if err := b.Clear(); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(context.Background()); err == nil {
		t.Error("a run without bindings succeeds")
	}
	if err := b.Input("nope", values[0]); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("unknown name: %v", err)
	}
	b.Close()
	if err := b.Run(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed binding: %v", err)
	}
}

// TestDeviceTensor stands on memory that is known by address only, here the host's.
func TestDeviceTensor(t *testing.T) {
	at, err := library.Allocate(Float32, []int64{2})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := Data[float32](at)
	copy(data, []float32{5, 6})
	p, err := at.Pointer()
	if err != nil {
		t.Fatal(err)
	}
	v, err := library.NewDeviceTensor(cpu(t), Float32, []int64{1, 2}, p, 8)
	out := through(t, v, err, Float32, "a", "b")
	y, _ := Data[float32](out)
	expect(t, "y", y, 5, 6)
	if _, err := library.NewDeviceTensor(cpu(t), Float32, []int64{3}, p, 8); err == nil || !strings.Contains(err.Error(), "takes 12 bytes, 8 were given") {
		t.Errorf("too small: %v", err)
	}
}

// TestConcurrentRuns shares a session between goroutines.
func TestConcurrentRuns(t *testing.T) {
	s := session(t, marshal(t, unary("Neg")), SessionOptions{IntraOpThreads: 1})
	var workers sync.WaitGroup
	for g := range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range 50 {
				expect(t, "y", run(t, s, float32(g), float32(i)), float32(-g), float32(-i))
			}
		}()
	}
	workers.Wait()
}

// TestOptions sets every option and checks those whose effect shows.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	o := SessionOptions{
		IntraOpThreads: 2, InterOpThreads: 2, Parallel: true, Optimization: OptimizeBasic,
		Config:          map[string]string{"session.intra_op.allow_spinning": "0"},
		FreeDimensions:  map[string]int64{"n": 2},
		OptimizedModel:  filepath.Join(dir, "optimized.onnx"),
		Profile:         filepath.Join(dir, "profile"),
		LogSeverity:     LogError,
		NoMemoryPattern: true, NoArena: true,
	}
	s := session(t, marshal(t, unary("Neg")), o)
	if in := s.Inputs()[0].String(); in != "x: float32[2]" {
		t.Errorf("with n fixed the input is %s", in)
	}
	expect(t, "y", run(t, s, 1, 2), -1, -2)
	if _, err := os.Stat(o.OptimizedModel); err != nil {
		t.Error(err)
	}
	profile, err := s.EndProfiling()
	if err != nil || !strings.HasPrefix(profile, o.Profile) {
		t.Errorf("profile %q, %v", profile, err)
	}
	if b, err := os.ReadFile(profile); err != nil || !strings.Contains(string(b), "Neg") {
		t.Errorf("the profile has no Neg: %v", err)
	}
	for name, o := range map[string]SessionOptions{
		"no such file": {Libraries: []string{filepath.Join(dir, "none.so")}},
		"NoSuchEP":     {Providers: []Provider{{Name: "NoSuchEP", Options: map[string]string{"a": "b"}}}},
		"zero byte":    {Config: map[string]string{"a": "\x00"}},
		"is null":      {Domains: []Domain{{Name: "d", Operators: []uintptr{0}}}},
	} {
		if _, err := library.NewSessionFromBytes(marshal(t, unary("Neg")), o); err == nil || name != "no such file" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := library.NewSessionFromBytes(nil, SessionOptions{}); err == nil || !strings.Contains(err.Error(), "the model is empty") {
		t.Errorf("empty model: %v", err)
	}
}
