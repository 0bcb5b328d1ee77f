package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/trial"
	"github.com/opgraft/graft/host/plan"
)

// verifyFlags are those that compare what a plan places with the model.
type verifyFlags struct {
	verify   bool
	deadline time.Duration
}

func (v *verifyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.verify, "verify", false,
		"compare a session with these operators with the model, in a child process")
	between(cmd.Flags(), &v.deadline, "deadline", comparison.DefaultDeadline, time.Second, 24*time.Hour,
		"how long --verify may take, or a round of --profile: then a plugin hangs")
}

// consistent refuses flags that say nothing together.
func (v *verifyFlags) consistent(cmd *cobra.Command, p *planFlags, profile bool) error {
	if v.verify && p.device != "cpu" {
		return misuse("--verify with --device "+p.device, "--device cpu, where operators are compared")
	}
	if profile && p.device != "cpu" {
		return misuse("--profile with --device "+p.device, "--device cpu, where nodes are timed")
	}
	if !v.verify && !profile && cmd.Flags().Changed("deadline") {
		return misuse("--deadline without --verify", "--verify, which it limits")
	}
	return nil
}

// verdict is what a comparison found, nil where none was asked for.
type verdict trial.Verdict

// compare compares a plan's choices with the model in a child process.
func (v *verifyFlags) compare(ctx context.Context, c *cli, path string, p *plan.Plan, o plan.Options,
	time time.Duration) (*verdict, error) {
	if !v.verify {
		return nil, nil
	}
	j := trial.Of(path, p, o)
	j.Time, j.Runtime, j.Folders, j.Deadline, j.Output = time, c.runtime, c.folders, v.deadline, &printed{to: c.talk}
	shown := c.progress("comparing with the model")
	defer shown.end()
	found, err := trial.Apart(ctx, j)
	return (*verdict)(&found), err
}

// leave leaves the choices that answer otherwise than the model.
func (v *verdict) leave(p *plan.Plan) {
	if v == nil {
		return
	}
	for i, c := range p.Choices {
		if why, ok := v.Left[c.Node]; ok && c.Operator != nil {
			p.Choices[i].Leave(why)
		}
	}
}

// tell lists them.
func (v *verdict) tell(c *cli) {
	if v == nil {
		return
	}
	for _, node := range slices.Sorted(maps.Keys(v.Left)) {
		c.say("graft: left out, because it answers otherwise than the model: %s: %s", node, v.Left[node])
	}
}

// err is the error that some do.
func (v *verdict) err(path string) error {
	if v == nil || len(v.Left) == 0 {
		return nil
	}
	return &diagnostic.Error{Kind: errDiffers, Path: path,
		Found: fmt.Sprintf("%v: left out: %s", errDiffers, counted(len(v.Left), "block")),
		Fix: "Verify of graft.Options leaves them out of sessions, graft patch --verify out of a file; " +
			"report it to the plugin's author"}
}

// verified tells a report what was found.
func (r *inspection) verified(v *verdict) {
	if v == nil {
		return
	}
	same := map[string]bool{}
	for _, node := range v.Verified {
		same[node] = true
	}
	for i := range r.Blocks {
		if b := &r.Blocks[i]; b.Operator != "" {
			b.Verified, b.LeftOut = same[b.Node], v.Left[b.Node]
		}
	}
}

func (r *inspection) leftOut() (n int) {
	for _, b := range r.Blocks {
		if b.LeftOut != "" {
			n++
		}
	}
	return n
}
