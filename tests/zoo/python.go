package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// script compares a model with its patched file, for the tests of patched files too.
const script = "tests/python/compare.py"

// job is what it reads, and answer what it says of one.
type job struct {
	Name      string            `json:"name"`
	Model     string            `json:"model"`
	Patched   string            `json:"patched"`
	Libraries []string          `json:"libraries"`
	Inputs    map[string]string `json:"inputs"`
}

type answer struct {
	Stage, Error string
	Outputs      []struct {
		Name        string
		Disagree    int64
		MaxAbsolute float64 `json:"max_absolute"`
		Problem     string
	}
}

func (j job) run(ctx context.Context, program string) (a answer, err error) {
	in, err := json.Marshal([]job{j})
	if err != nil {
		return a, err
	}
	var out, talk bytes.Buffer
	cmd := exec.CommandContext(ctx, program, script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &talk
	if err := cmd.Run(); err != nil {
		return a, fmt.Errorf("%s %s: %w: %s", program, script, err, tail(talk.String()))
	}
	d := json.NewDecoder(&out)
	var version answer
	if err := d.Decode(&version); err != nil {
		return a, err
	}
	return a, d.Decode(&a)
}

// write writes a tensor as ONNX does.
func write(path string, v *ort.Value) error {
	raw, err := v.Bytes()
	if err != nil {
		return err
	}
	b, err := proto.Marshal(&onnx.Tensor{Dims: v.Shape(), DataType: proto.Int32(int32(v.Element())), RawData: raw})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
