package comparison

import (
	"context"

	"github.com/opgraft/graft/host/base/worker"
)

// AnswersApart is Answers in a child process, with the errors of Apart.
func AnswersApart(ctx context.Context, j Job) (*Result, error) {
	j.Options.Others, j.Options.Axes = nil, nil
	child, err := Start(ctx, worker.Options{Subject: j.Model, Deadline: j.Deadline, Output: j.Output,
		Starts: isolates(j.Options.names()...)})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	a := &apart{child, j}
	opened, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := a.cell(ctx, 0)
	if err != nil {
		return nil, err
	}
	return newSwept(j.Model, j.Options, opened, []Cell{*c}).Result(), nil
}
