package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// peerProcess is another engine in a process of its own, bench/peers/serve.py.
type peerProcess struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	hello   peerHello
}

// peerHello is what the process says once its model is open.
type peerHello struct {
	Settings map[string]any    `json:"settings"`
	Versions map[string]string `json:"versions"`
	Error    string            `json:"error,omitempty"`
}

// peerRequest is one generation of a batch: tokens, or features that both sides
// sample from the seed of the weights.
type peerRequest struct {
	Inputs            [][]int32     `json:"inputs,omitempty"`
	Features          *peerFeatures `json:"features,omitempty"`
	Prompt            []int32       `json:"prompt,omitempty"` // of a speech model's decoder
	Banned            []int32       `json:"banned"`           // the end token first
	Beams             int           `json:"beams"`
	NewTokens         int           `json:"new_tokens"`
	NoRepeatNgramSize int           `json:"no_repeat_ngram_size"`
}

// peerFeatures are of shape [batch, mel bins, frames].
type peerFeatures struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
}

type peerAnswer struct {
	Tokens  [][]int32 `json:"tokens"` // of the best sequence of each input
	Seconds float64   `json:"seconds"`
	First   float64   `json:"first"` // of these, until each input had its first token; 0 where the peer does not say
	Error   string    `json:"error,omitempty"`
}

// startPeer opens a subject with a peer; venv is the folder of its Python
// environment.
func startPeer(ctx context.Context, venv, peer, subject, way string) (*peerProcess, error) {
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, fmt.Errorf("%w: make bench-peers makes the environment, from bench/peers/requirements.txt", err)
	}
	p := &peerProcess{command: exec.CommandContext(ctx, python, filepath.Join("bench", "peers", "serve.py"), peer, subject,
		way, strconv.Itoa(runtime.NumCPU()))}
	p.command.Stderr = os.Stderr
	p.command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if isa := peerISA(); isa != "" {
		p.command.Env = append(p.command.Env, "CT2_FORCE_CPU_ISA="+isa)
	}
	var err error
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 64<<20)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	if err = p.read(&p.hello); err == nil && p.hello.Error != "" {
		err = errors.New(p.hello.Error)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("%s, %s, %s: %w", peer, subject, way, err)
	}
	return p, nil
}

// peerISA makes CTranslate2 use its AVX-512 code, which it leaves unused on some
// processors that have it; "" leaves the choice to it.
func peerISA() string {
	if isa, ok := os.LookupEnv("CT2_FORCE_CPU_ISA"); ok {
		return isa
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && strings.Contains(string(info), " avx512vl") {
		return "AVX512"
	}
	return ""
}

func (p *peerProcess) read(v any) error {
	if !p.out.Scan() {
		return errors.Join(errors.New("the peer's process ended without an answer"), p.out.Err())
	}
	return json.Unmarshal(p.out.Bytes(), v)
}

// ask sends a request and reads the answer to it.
func (p *peerProcess) ask(request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return err
	}
	return p.read(answer)
}

// generate runs one request. The process is asleep before and after.
func (p *peerProcess) generate(r peerRequest) (peerAnswer, error) {
	var a peerAnswer
	if err := p.ask(r, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	if want := r.sequences(); len(a.Tokens) != want {
		return a, fmt.Errorf("the peer answered %d sequences for %d inputs", len(a.Tokens), want)
	}
	for i, tokens := range a.Tokens {
		if len(tokens) != r.NewTokens {
			return a, fmt.Errorf("the peer gave %d tokens for input %d, asked were %d: its work is not ours", len(tokens), i,
				r.NewTokens)
		}
	}
	return a, nil
}

func (r *peerRequest) sequences() int {
	if r.Features != nil {
		return int(r.Features.Shape[0])
	}
	return len(r.Inputs)
}

// close lets the process end, and ends it when it does not.
func (p *peerProcess) close() {
	p.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = p.command.Process.Kill() })
	defer timer.Stop()
	_ = p.command.Wait() // its error was an answer already
}
