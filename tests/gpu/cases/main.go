// Command cases writes what a machine without Go needs to run plugins' operators inside ONNX Runtime:
//
//	go run ./tests/gpu/cases OUT PLUGIN_DIR...
//
// OUT/<plugin> gets, of each case of the plugin's manifest and for each type of numbers that the operator takes, a
// model of one node, and cases.json and cases.bin with inputs and with what the plugin's CPU variant answers in
// float32 on the same (rounded) inputs. It loads the CPU variants, and fails where one of them fails its own case.
// Plugins without a CUDA variant and cases of more than maxBytes are left out.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

const maxBytes = 400 << 10 // of a case's inputs

// tolerances are what the project promises of answers in a type (check.h has the same).
var tolerances = map[tensor.DType]manifest.Tolerance{
	tensor.Float32:  {Absolute: 1e-5, Relative: 1e-4},
	tensor.Float16:  {Absolute: 2.5e-3, Relative: 1e-3},
	tensor.BFloat16: {Absolute: 2e-2, Relative: 1e-2},
}

// A record describes one model. Its tensors lie in cases.bin, floating-point numbers as float32.
type record struct {
	Name     string  `json:"name"`
	Operator string  `json:"operator"`
	Type     string  `json:"type"`     // of its floating-point numbers
	Optional bool    `json:"optional"` // the CPU variant does not take this type, the CUDA variant may
	Model    string  `json:"model"`
	Inputs   []array `json:"inputs"`
	Outputs  []array `json:"outputs"`
	manifest.Tolerance
}

type array struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int     `json:"offset"`
	Bytes  int     `json:"bytes"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cases OUT PLUGIN_DIR...")
		os.Exit(2)
	}
	for _, folder := range os.Args[2:] {
		if err := write(os.Args[1], folder); err != nil {
			fmt.Fprintln(os.Stderr, "cases:", err)
			os.Exit(1)
		}
	}
}

// write writes the models of one plugin.
func write(out, folder string) error {
	p, err := plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(p.Manifest.Variants, func(v manifest.Variant) bool { return v.Device == "cuda" }) {
		return nil
	}
	to := filepath.Join(out, p.Manifest.Name)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var records []*record
	var data []byte
	for i := range p.Manifest.Cases {
		c := &p.Manifest.Cases[i]
		if c.Fold != nil {
			continue // folds run on the host
		}
		result, err := conformance.Run(context.Background(), p, c)
		if err == nil && result.Problem != "" {
			err = errors.New(result.Problem)
		}
		if err != nil {
			return fmt.Errorf("%s: case %q: %w", folder, c.Name, err)
		}
		for _, t := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
			r, model, err := one(p, c, t, &data)
			if err != nil {
				return fmt.Errorf("%s: case %q as %s: %w", folder, c.Name, t, err)
			}
			if r == nil {
				continue
			}
			r.Model = fmt.Sprintf("%d-%s.onnx", i, t)
			if err := storage.Write(filepath.Join(to, r.Model), model, storage.Shared); err != nil {
				return err
			}
			records = append(records, r)
		}
	}
	text, err := json.MarshalIndent(records, "", " ")
	if err != nil {
		return err
	}
	if err := storage.Write(filepath.Join(to, "cases.json"), text, storage.Shared); err != nil {
		return err
	}
	return storage.Write(filepath.Join(to, "cases.bin"), data, storage.Shared)
}

// one makes a case's model with numbers of type t; nil where the operator has no input that takes them, or where
// that is what the model of another type is.
func one(p *plugin.Plugin, c *manifest.Case, t tensor.DType, data *[]byte) (*record, []byte, error) {
	op, _, _ := p.Info.Operator(c.Operator)
	given, err := conformance.Tensors(c, op)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := conformance.Wanted(c, op)
	if err != nil {
		return nil, nil, err
	}
	if size(given) > maxBytes {
		return nil, nil, nil
	}
	as, types := *c, make([]tensor.DType, len(given)) // types: of the node's inputs
	taken, optional := false, false
	as.Inputs = slices.Clone(c.Inputs)
	for i, x := range given {
		if x == nil {
			continue
		}
		parameter := op.Inputs[min(i, len(op.Inputs)-1)]
		types[i] = x.DType
		listed := slices.Contains(parameter.Types, t)
		variable := parameter.TypeVariable >= 0 && slices.Contains(parameter.Types, tensor.Float32)
		if !isFloat(x.DType) || !listed && !variable {
			continue
		}
		optional = optional || !listed
		types[i], taken = t, true
		for j := range as.Inputs {
			if as.Inputs[j].Name == parameter.Name {
				as.Inputs[j].DType = string(t)
			}
		}
	}
	if !taken {
		return nil, nil, nil
	}
	inputs, err := conformance.Tensors(&as, op)
	if err != nil {
		return nil, nil, err
	}
	for i, x := range inputs {
		if x != nil && isFloat(x.DType) {
			if inputs[i], err = wide(x); err != nil {
				return nil, nil, err
			}
		}
	}
	answers, err := answer(p, c, inputs, wanted)
	if err != nil {
		return nil, nil, err
	}
	r := &record{Name: c.Name, Operator: c.Operator, Type: string(t), Optional: optional, Tolerance: tolerances[t]}
	r.Absolute, r.Relative = max(r.Absolute, c.Tolerance.Absolute), max(r.Relative, c.Tolerance.Relative)
	// The model rounds its inputs: all types have the same.
	for i, x := range given {
		if x == nil {
			continue
		}
		if isFloat(x.DType) {
			if x, err = wide(x); err != nil {
				return nil, nil, err
			}
		}
		if at := bytes.Index(*data, x.Bytes()); at >= 0 {
			r.Inputs = append(r.Inputs, described(fmt.Sprintf("x%d", i), x, at))
		} else {
			r.Inputs = append(r.Inputs, store(fmt.Sprintf("x%d", i), x, data))
		}
	}
	for i, y := range answers {
		if y != nil {
			r.Outputs = append(r.Outputs, store(fmt.Sprintf("y%d", i), y, data))
		}
	}
	model, err := build(c, op, inputs, types, answers, t)
	return r, model, err
}

func size(tensors []*tensor.Tensor) int {
	sum := 0
	for _, x := range tensors {
		if x != nil {
			sum += len(x.Bytes())
		}
	}
	return sum
}

func isFloat(d tensor.DType) bool {
	return d == tensor.Float32 || d == tensor.Float16 || d == tensor.BFloat16
}

// wide is x as float32.
func wide(x *tensor.Tensor) (*tensor.Tensor, error) {
	out, err := tensor.New(tensor.Float32, x.Shape...)
	if err != nil {
		return nil, err
	}
	for i, v := range x.Floats() {
		tensor.Elems[float32](out)[i] = float32(v)
	}
	return out, nil
}

// answer runs the CPU variant.
func answer(p *plugin.Plugin, c *manifest.Case, inputs []*tensor.Tensor, wanted []bool) ([]*tensor.Tensor, error) {
	op, _, ok := p.Info.Operator(c.Operator)
	if !ok {
		return nil, fmt.Errorf("the library has no operator %s", c.Operator)
	}
	k, err := p.Create(c.Operator, c.Attributes, conformance.Constants(c, op, inputs), tensor.CPU)
	if err != nil {
		return nil, err
	}
	defer k.Destroy()
	outputs, err := k.Infer(inputs, wanted)
	if err != nil {
		return nil, err
	}
	for i, y := range outputs {
		if y != nil {
			if outputs[i], err = tensor.New(y.DType, y.Shape...); err != nil {
				return nil, err
			}
		}
	}
	workspace, err := k.Workspace(inputs, outputs, 1)
	if err != nil {
		return nil, err
	}
	return outputs, k.Run(&plugin.RunContext{Workspace: plugin.NewWorkspace(workspace), Threads: 1}, inputs, outputs)
}

func store(name string, x *tensor.Tensor, data *[]byte) array {
	a := described(name, x, len(*data))
	*data = append(*data, x.Bytes()...)
	return a
}

func described(name string, x *tensor.Tensor, offset int) array {
	a := array{Name: name, DType: string(x.DType), Shape: x.Shape, Offset: offset, Bytes: len(x.Bytes())}
	if a.Shape == nil {
		a.Shape = []int64{}
	}
	return a
}
