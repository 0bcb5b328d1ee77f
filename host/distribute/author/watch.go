package author

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// period is how often sources are looked at: often enough for whoever saved one, and nothing for the machine.
const period = 250 * time.Millisecond

// Watch calls work with what changed in a folder of sources, first with nothing, until ctx ends. A change that comes
// while work runs ends its context, and work is called again once nothing has changed for a moment: editors write
// several files. What is built, hidden files and their folders do not count.
func Watch(ctx context.Context, folder string, work func(ctx context.Context, changed []string)) error {
	before, err := state(folder)
	if err != nil {
		return err
	}
	var changed []string
	for {
		working, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			work(working, changed)
		}()
		before, changed, err = await(ctx, folder, before)
		end()
		<-done
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// await returns once a folder is another than before and has been the same twice.
func await(ctx context.Context, folder string, before map[string]string) (map[string]string, []string, error) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	last := before
	for {
		select {
		case <-ctx.Done():
			return before, nil, ctx.Err()
		case <-ticks.C:
		}
		now, err := state(folder)
		if err != nil {
			return before, nil, err
		}
		if changed := differences(before, now); len(changed) > 0 && len(differences(last, now)) == 0 {
			return now, changed, nil
		}
		last = now
	}
}

// state says of each source how long it is and when it was written.
func state(folder string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path != folder {
				return nil // it went while the folder was read
			}
			return cannotRead(folder, err)
		}
		if path != folder && (strings.HasPrefix(d.Name(), ".") || d.Name() == buildFolder && d.IsDir() ||
			d.Name() == "target" && d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		// cargo writes its lock file itself.
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && d.Name() != "Cargo.lock" {
			rel, err := filepath.Rel(folder, path)
			if err != nil {
				return err
			}
			files[rel] = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return files, err
}

// differences are the names of what is not the same in two states.
func differences(a, b map[string]string) []string {
	var list []string
	for name, x := range a {
		if b[name] != x {
			list = append(list, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
