package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/session/sessions"
)

const (
	manyProcesses       = 8
	processesMemoryMost = 1.25 // times what one process holds, and each other but for weights
	processesSpeedLeast = 0.99 // with shared weights over that with weights of each process's own
)

// pss is a process's part of the memory that it maps: each page is counted by the share that it has of it.
type pss struct{ allMB, weightsMB float64 } // weights in memory files

// processesResult is what several processes of a model hold, each with one session.
type processesResult struct {
	SchemaVersion int                `json:"schema_version"`
	Processes     int                `json:"processes"`
	Models        []*processesModel  `json:"models"`
	Speeds        []*processesSpeeds `json:"speeds"`
	Speed         float64            `json:"speed_geometric_mean"`
}

type processesModel struct {
	Subject string           `json:"subject"`
	Plain   processesMemory  `json:"plain"`
	Own     *processesMemory `json:"own"` // patched, with weights of each process's own
	Shared  *processesMemory `json:"shared"`
	// of shared weights: the sum over what one process holds and what each other would but for weights
	Ratio float64 `json:"sum_over_one_and_private"`
}

// processesMemory are processes of one side, after each has run.
type processesMemory struct {
	OneMB         float64 `json:"one_pss_mb"`
	OneWeightsMB  float64 `json:"one_shared_weights_mb"` // of that
	ManyMB        float64 `json:"sum_pss_mb"`
	ManyWeightsMB float64 `json:"sum_shared_weights_mb"`
	FirstS        float64 `json:"first_open_s"`
	NextS         float64 `json:"next_open_s"` // median
}

// processesSpeeds are runs on one thread, by the processor time that they take.
type processesSpeeds struct {
	Subject  string    `json:"subject"`
	Batch    int       `json:"batch"`
	Length   int       `json:"length"`
	OwnMS    []float64 `json:"own_processor_ms"`
	SharedMS []float64 `json:"shared_processor_ms"`
	Speed    float64   `json:"own_over_shared"`
}

// ownWeights are the entries of a session that shares its weights with no other process.
var ownWeights = map[string]string{sessions.ConfigShare: "0"}

// encoderProcesses opens a model in eight processes at once.
func encoderProcesses() figure {
	return figure{"encoder-processes",
		"eight processes of MiniLM and of BERT-base's shape: sum of PSS over that of one and what the others have but " +
			"weights; processor time on one thread with shared weights",
		fmt.Sprintf("at most %.2fx; speed at least %.2fx", processesMemoryMost, processesSpeedLeast),
		func(ctx context.Context, b *bench) (*outcome, error) {
			r := &processesResult{SchemaVersion: 1, Processes: manyProcesses}
			met, text, logs := true, "", 0.
			for _, name := range []string{"minilm", "bert-base"} {
				m, err := b.processes(ctx, encoderNamed(name))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				r.Models = append(r.Models, m)
				for _, shape := range [][2]int{{1, 16}, {8, 64}} {
					s, err := b.processesSpeed(ctx, encoderNamed(name), shape[0], shape[1])
					if err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
					r.Speeds, logs = append(r.Speeds, s), logs+math.Log(s.Speed)
				}
				met = met && m.Ratio <= processesMemoryMost
				text += fmt.Sprintf("%s: PSS of %d processes %.0f MB, %.2fx that of one, %.2fx that and what each other has but "+
					"weights (own weights %.0f MB, %.2fx; plain %.0f MB, %.2fx), the next opened in %.2f s (own %.2f s); ", name,
					manyProcesses,
					m.Shared.ManyMB, m.Shared.ManyMB/m.Shared.OneMB, m.Ratio, m.Own.ManyMB, m.Own.ManyMB/m.Own.OneMB, m.Plain.ManyMB,
					m.Plain.ManyMB/m.Plain.OneMB, m.Shared.NextS, m.Own.NextS)
			}
			r.Speed = math.Exp(logs / float64(len(r.Speeds)))
			return &outcome{Detail: r, Met: met && r.Speed >= processesSpeedLeast,
				Got: fmt.Sprintf("%sspeed %.3fx", text, r.Speed)}, nil
		}}
}

// processes measures the memory of one and of several processes of a model, of each side.
func (b *bench) processes(ctx context.Context, e *encoder) (m *processesModel, err error) {
	path, err := e.path()
	if err != nil {
		return nil, err
	}
	m = &processesModel{Subject: e.name}
	job := encodeJob{Model: path, Threads: 1, Sessions: 1}
	if m.Plain, err = b.processesOf(ctx, e, job); err != nil {
		return nil, err
	}
	job.Patched = true
	for config, to := range map[*map[string]string]**processesMemory{&ownWeights: &m.Own, &b.encoders.config: &m.Shared} {
		job.Config = *config
		held, err := b.processesOf(ctx, e, job)
		if err != nil {
			return nil, err
		}
		*to = &held
	}
	if m.Shared.OneWeightsMB == 0 {
		return nil, errors.New("no weights are shared: graft doctor says why")
	}
	m.Ratio = m.Shared.ManyMB / (m.Shared.OneMB + (manyProcesses-1)*(m.Shared.OneMB-m.Shared.OneWeightsMB))
	return m, nil
}

func (b *bench) processesOf(ctx context.Context, e *encoder, job encodeJob) (m processesMemory, err error) {
	var all []*encodeSide
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	var next []float64
	for range manyProcesses {
		s, err := startSide(ctx, job)
		if err != nil {
			return m, err
		}
		all = append(all, s)
		fed, err := (&sides{subject: e, a: s}).batch(cellOf(e.name, 8, lengths{kind: unpadded, most: 64}), nil)
		if err != nil {
			return m, err
		}
		for _, request := range []encodeRequest{{Inputs: fed.inputs, Runs: 3}, {}} {
			if _, err := s.do(request); err != nil {
				return m, err
			}
		}
		if len(all) > 1 {
			next = append(next, s.hello.OpenSeconds)
			continue
		}
		one, err := pssOf(s.command.Process.Pid)
		if err != nil {
			return m, err
		}
		m.OneMB, m.OneWeightsMB, m.FirstS = one.allMB, one.weightsMB, s.hello.OpenSeconds
	}
	m.NextS = statistics.Median(next)
	for _, s := range all {
		p, err := pssOf(s.command.Process.Pid)
		if err != nil {
			return m, err
		}
		m.ManyMB, m.ManyWeightsMB = m.ManyMB+p.allMB, m.ManyWeightsMB+p.weightsMB
	}
	return m, nil
}

// processesSpeed compares a session with weights of its process's own with one whose weights are shared, in turns.
func (b *bench) processesSpeed(ctx context.Context, e *encoder, batch, length int) (*processesSpeeds, error) {
	path, err := e.path()
	if err != nil {
		return nil, err
	}
	s := &sides{subject: e}
	defer s.close()
	if s.a, err = startSide(ctx,
		encodeJob{Model: path, Threads: 1, Sessions: 1, Patched: true, Config: ownWeights}); err != nil {
		return nil, err
	}
	if s.b, err = startSide(ctx,
		encodeJob{Model: path, Threads: 1, Sessions: 1, Patched: true, Config: b.encoders.config}); err != nil {
		return nil, err
	}
	fed, err := s.batch(cellOf(e.name, batch, lengths{kind: unpadded, most: length}), nil)
	if err != nil {
		return nil, err
	}
	first, err := s.a.do(encodeRequest{Inputs: fed.inputs, Runs: 3})
	if err != nil {
		return nil, err
	}
	block := encodeRequest{Inputs: fed.inputs, Warmup: 1, Runs: min(50, max(2, int(turnMS/first.WallMS[2])))}
	r := &processesSpeeds{Subject: e.name, Batch: batch, Length: length}
	for round, end := 0, time.Now().Add(b.encoders.each); round < min(3, b.rounds) ||
		round < b.rounds && time.Now().Before(end); round++ {
		for _, isA := range []bool{true, false, false, true} {
			side, to := s.a, &r.OwnMS
			if !isA {
				side, to = s.b, &r.SharedMS
			}
			reply, err := side.do(block)
			if err != nil {
				return nil, err
			}
			*to = append(*to, reply.ProcessorMS...)
		}
	}
	r.Speed = statistics.Median(r.OwnMS) / statistics.Median(r.SharedMS)
	fmt.Fprintf(os.Stderr, "%s, %d x %d tokens: processor time %.2f ms with weights of its own, %.2f ms with shared "+
		"ones, %.3fx\n", e.name, batch, length,
		statistics.Median(r.OwnMS), statistics.Median(r.SharedMS), r.Speed)
	return r, nil
}

// pssOf is that of a process now.
func pssOf(process int) (p pss, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", process))
	if err != nil {
		return p, err
	}
	defer f.Close()
	weights := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if !strings.HasSuffix(words[0], ":") { // a mapping begins
			weights = strings.Contains(lines.Text(), "/memfd:graft-weights-")
			continue
		}
		if words[0] != "Pss:" {
			continue
		}
		kb, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return p, err
		}
		p.allMB += kb / 1024
		if weights {
			p.weightsMB += kb / 1024
		}
	}
	return p, lines.Err()
}
