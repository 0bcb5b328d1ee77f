package comparison

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
)

const taskFootprint = "comparison memory"

type footprintRequest struct {
	Job  Job
	Side int // 0 is A
}

// footprints measures the memory of all sides, each in a process of its own.
func (j *Job) footprints(ctx context.Context, sides []*Opened) error {
	for i, s := range sides {
		j.Options.step("measuring the memory of " + s.Name)
		child, err := Start(ctx, worker.Options{Subject: j.Model, Deadline: j.Deadline, Output: j.Output,
			Starts: isolates(j.Options.names()[i])})
		if err != nil {
			return err
		}
		f, err := Ask[Footprint](ctx, child, taskFootprint, footprintRequest{*j, i})
		child.Close()
		if err != nil {
			return fmt.Errorf("the memory of %s (%s): %w", j.Options.label(i), s.Name, err)
		}
		s.Footprint = &f
	}
	return nil
}

// footprint opens a side and runs it once with each size of inputs, in a process that does nothing else.
func (r *footprintRequest) footprint(ctx context.Context) (f Footprint, err error) {
	o, path := &r.Job.Options, r.Job.Model
	names := o.names()
	if r.Side < 0 || r.Side >= len(names) {
		return f, errors.New("there is no such side")
	}
	l, err := ort.FindAndOpen(r.Job.Runtime)
	if err != nil {
		return f, err
	}
	set, _, err := Plugins(r.Job.Folders, names[r.Side] != "none")
	if err != nil {
		return f, err
	}
	sizes, err := cells(o.Axes)
	if err != nil {
		return f, err
	}
	of := path
	if r.Side == 1 && o.ModelB != "" {
		of = o.ModelB
	}
	s, err := open(ctx, l, set, of, names[r.Side], *o)
	if err != nil {
		return f, err
	}
	defer s.close()
	f.OpenedRSSBytes = Resident("VmRSS")
	for _, lengths := range sizes {
		fed, err := inputs.Make(l, path, o.In(lengths).Inputs)
		if err != nil {
			return f, within(o.Axes, lengths, err)
		}
		err = s.first(ctx, fed.Values)
		fed.Close()
		if err != nil {
			return f, within(o.Axes, lengths, err)
		}
	}
	f.PeakRSSBytes = Resident("VmHWM")
	return f, nil
}

// Resident is a line of this process's status, such as VmRSS or VmHWM, in bytes; 0 where the system does not say.
func Resident(what string) int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(data), what+":")
	var kilobytes int64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
