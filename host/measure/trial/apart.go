package trial

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
)

// Job is a plan that a child process compares with its model, so that a plugin which crashes, ends the process or hangs
// is an error.
type Job struct {
	Model   string
	Plan    map[string]string // node -> operator, as of plan.Options.Fixed
	Noise   bool              // plan.Options.QuantizationNoise
	Padding plan.Padding      // plan.Options.Padding
	Time    time.Duration     // that the analysis may take; 0 for patch.DefaultTime
	Runtime string            // path of ONNX Runtime's library; "" to find it
	Folders []string          // of plugins, searched first
	// Deadline is how long it may take in all; 0 is comparison.DefaultDeadline.
	Deadline time.Duration `json:"-"`
	// Output gets what the child prints, such as warnings of ONNX Runtime; nil for silence.
	Output io.Writer `json:"-"`
}

// Of makes the job of a plan's choices.
func Of(path string, p *plan.Plan, o plan.Options) Job {
	j := Job{Model: path, Plan: map[string]string{}, Noise: o.QuantizationNoise, Padding: o.Padding}
	for _, c := range p.Choices {
		if c.Operator != nil {
			j.Plan[c.Node] = c.Operator.Name
		}
	}
	return j
}

// Verdict is what a comparison found of blocks, by their nodes.
type Verdict struct {
	Verified []string          // a session with their operators answers as the model
	Left     map[string]string // it does not, with the reasons
}

const task = "trial"

// Apart compares as Patcher does, in a child process: this executable, whose main calls worker.Main with Tasks. What
// ends the child is an error of kind worker.ErrEnded, and what takes too long one of worker.ErrDeadline.
func Apart(ctx context.Context, j Job) (v Verdict, err error) {
	if len(j.Plan) == 0 {
		return v, nil
	}
	child, err := comparison.Start(ctx, worker.Options{Subject: j.Model, Deadline: j.Deadline, Output: j.Output})
	if err != nil {
		return v, err
	}
	defer child.Close()
	err = comparison.Ended(child.Run(ctx, task, j, &v))
	if errors.Is(err, worker.ErrTask) {
		err = &diagnostic.Error{Kind: worker.ErrTask, Path: j.Model,
			Found: "its answers could not be verified: " + strings.TrimPrefix(err.Error(), j.Model+": "),
			Fix:   "graft ab compares them with inputs of your own (--inputs)"}
	}
	return v, err
}

// Tasks are what an executable that can be a child does for Apart: pass them to worker.Main.
func Tasks() map[string]worker.Handler {
	return map[string]worker.Handler{task: worker.Handle(
		func(ctx context.Context, j Job) (Verdict, error) { return j.verdict(ctx) })}
}

// verdict compares in this process.
func (j Job) verdict(ctx context.Context) (v Verdict, err error) {
	l, err := ort.FindAndOpen(j.Runtime)
	if err != nil {
		return v, err
	}
	set, err := loaded.Load(j.Folders, false)
	if err != nil {
		return v, err
	}
	t := &Patcher{Sessions: &sessions.Patcher{Plugins: set.Plugins, Time: j.Time,
		Options: set.Plan(plan.Options{Fixed: j.Plan, QuantizationNoise: j.Noise, Padding: j.Padding})}}
	done := errors.New("compared") // in place of a session
	_, failed := session.OpenContext(ctx, l, j.Model,
		session.Options{Patcher: func(r session.Request) (*session.Patch, error) {
			c := t.trial(r)
			var wrong plan.LeftOut
			if wrong, err = c.compare(ctx); err != nil {
				return nil, err
			}
			v.Left = map[string]string{}
			for _, k := range c.placed {
				if why := wrong[k]; why != "" {
					v.Left[k.Node] = why
				} else {
					v.Verified = append(v.Verified, k.Node)
				}
			}
			return nil, done
		}})
	if err == nil && !errors.Is(failed, done) {
		err = failed
	}
	return v, err
}
