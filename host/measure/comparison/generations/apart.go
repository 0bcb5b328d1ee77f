package generations

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
)

// Job is what generates in a child process, so that a plugin which crashes, ends the process or hangs is an error: a
// comparison, by its options.
type Job[O any] struct {
	Folder  string
	Options O
	Runtime string   // path of ONNX Runtime's library; "" to find it
	Folders []string // of plugins, searched first
	// Output gets what the child prints, such as warnings of ONNX Runtime; nil for silence.
	Output io.Writer `json:"-"`
	// Refused is told of plugins that were left out; nil for silence.
	Refused func(why string) `json:"-"`
}

func (j Job[O]) refused(list []string) {
	if j.Refused == nil {
		return
	}
	for _, why := range list {
		j.Refused(why)
	}
}

// start starts a child process for a model's folder, each task of which ends by a deadline.
func start(ctx context.Context, folder string, deadline time.Duration, output io.Writer) (*worker.Child, error) {
	// Caches are reserved, each half of the machine's memory, of which they take what they need.
	return comparison.Start(ctx,
		worker.Options{Subject: folder, Deadline: deadline, Memory: math.MaxInt64 >> 1, Output: output})
}

// Apart is CompareAll in a child process: this executable, whose main calls worker.Main with Tasks. Each of opening a
// side, a generation before times are taken, a round, and a window of a text that all sides read may take
// Options.Deadline. What ends the child is an error of kind worker.ErrEnded, and what takes too long one of
// worker.ErrDeadline; other errors are those of CompareAll.
func Apart(ctx context.Context, j Job[Options]) (*Compared, error) {
	child, err := start(ctx, j.Folder, j.Options.Deadline, j.Output)
	if err != nil {
		return nil, err
	}
	defer child.Close()
	return run(ctx, &apart{child, j}, j.Folder, j.Options)
}

// apart are the stages in a child.
type apart struct {
	child *worker.Child
	job   Job[Options]
}

// The child's tasks, which are its stages.
const (
	taskStart = "generations"
	taskOpen  = "generations side"
	taskFirst = "generations first"
	taskRound = "generations round"
	taskForce = "generations force"
	taskEnd   = "generations end"
)

func (a *apart) open(ctx context.Context, side int) error {
	if side == 0 {
		refused, err := comparison.Ask[[]string](ctx, a.child, taskStart, a.job)
		a.job.refused(refused)
		if err != nil {
			return err
		}
	}
	_, err := comparison.Ask[bool](ctx, a.child, taskOpen, side)
	return err
}

func (a *apart) first(ctx context.Context, side int) ([][][]int32, error) {
	return comparison.Ask[[][][]int32](ctx, a.child, taskFirst, side)
}

func (a *apart) round(ctx context.Context) (*round, error) {
	return comparison.Ask[*round](ctx, a.child, taskRound, nil)
}

func (a *apart) force(ctx context.Context) (*forcedPart, error) {
	return comparison.Ask[*forcedPart](ctx, a.child, taskForce, nil)
}

func (a *apart) end(ctx context.Context) (*end, error) {
	return comparison.Ask[*end](ctx, a.child, taskEnd, nil)
}

// Tasks are what an executable that can be a child does for Apart: pass them to worker.Main. A child does
// one of them, once.
func Tasks() map[string]worker.Handler {
	var h *here
	started := func() (*here, error) {
		if h == nil {
			return nil, errors.New("no comparison was begun")
		}
		return h, nil
	}
	tasks := map[string]worker.Handler{
		taskStart: comparison.Task(func(_ context.Context, j Job[Options]) (refused []string, err error) {
			l, err := ort.FindAndOpen(j.Runtime)
			if err != nil {
				return nil, err
			}
			set, refused, err := comparison.Plugins(j.Folders,
				slices.ContainsFunc(j.Options.names(), func(name string) bool { return name != "none" }))
			if err == nil {
				h = &here{library: l, set: set, folder: j.Folder, options: j.Options}
			}
			return refused, err
		}),
		taskOpen: comparison.Task(func(ctx context.Context, side int) (bool, error) {
			h, err := started()
			if err != nil {
				return false, err
			}
			return true, h.open(ctx, side)
		}),
		taskFirst: comparison.Task(func(ctx context.Context, side int) ([][][]int32, error) {
			h, err := started()
			if err != nil {
				return nil, err
			}
			return h.first(ctx, side)
		}),
		taskRound: comparison.Task(func(ctx context.Context, _ any) (*round, error) {
			h, err := started()
			if err != nil {
				return nil, err
			}
			return h.round(ctx)
		}),
		taskForce: comparison.Task(func(ctx context.Context, _ any) (*forcedPart, error) {
			h, err := started()
			if err != nil {
				return nil, err
			}
			return h.force(ctx)
		}),
		taskEnd: comparison.Task(func(ctx context.Context, _ any) (*end, error) {
			h, err := started()
			if err != nil {
				return nil, err
			}
			return h.end(ctx)
		}),
	}
	return tasks
}
