package generate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/internal/must"
)

// device is one that generates nothing.
type device struct {
	Device
	closed *int
}

func (d device) Close() { *d.closed++ }

// TestOneStateOfAFolder: a folder of which some files are replaced while it is opened is opened again, so that the
// tokenizer of one version never stands beside the graphs of another; one that goes on changing is an error.
func TestOneStateOfAFolder(t *testing.T) {
	replace := func(path string) {
		data, err := os.ReadFile(path)
		if err == nil {
			if err = os.WriteFile(path+".new", data, 0o644); err == nil {
				err = os.Rename(path+".new", path)
			}
		}
		must.Succeed(t, err)
	}
	for _, c := range []struct {
		name, file string
		changes    int // the first tries during which the file changes
		opened     int
		fails      bool
	}{
		{"nothing changes", "", 0, 1, false},
		{"a tokenizer is replaced", "tokenizer.json", 1, 2, false},
		{"a configuration is replaced", "config.json", 1, 2, false},
		{"a graph is replaced", "model.onnx", 1, 2, false},
		{"a file comes", "generation_config.json", 1, 2, false},
		{"a tokenizer is replaced again and again", "tokenizer.json", 2, 2, true},
		{"what is no part of a model changes", "answers.txt", 2, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for _, name := range []string{"tokenizer.json", "config.json", "model.onnx", "answers.txt"} {
				text := "{}"
				switch name {
				case "tokenizer.json":
					text = `{"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}}`
				case "config.json":
					text = `{"vocab_size": 10}`
				}
				must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
			}
			opened, closed := 0, 0
			g, err := open(folder, func() (Device, error) {
				if opened++; opened <= c.changes {
					if path := filepath.Join(folder, c.file); c.file == "generation_config.json" {
						must.Succeed(t, os.WriteFile(path, nil, 0o644))
					} else {
						replace(path)
					}
				}
				return device{closed: &closed}, nil
			})
			must.Equal(t, opened, c.opened)
			if c.fails {
				if !errors.Is(err, model.ErrInUse) || !strings.Contains(err.Error(), c.file) || closed != opened {
					t.Errorf("error %v, %d of %d devices closed; want one that names the file, and all closed", err, closed, opened)
				}
				return
			}
			if err != nil || g.Device == nil || closed != opened-1 {
				t.Errorf("error %v, %d of %d devices closed", err, closed, opened)
			}
		})
	}
}
