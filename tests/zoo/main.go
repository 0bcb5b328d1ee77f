// Command zoo takes every ONNX file of folders through graft: recognition, sessions, a patched file in Python's
// onnxruntime; and compares each answer with that of ONNX Runtime alone. Each file has a process of its own, so that
// one which crashes or hangs is a line of the table.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	one := flag.String("one", "", "look at this file alone, in this process, and print its row as JSON")
	python := flag.String("python", "build/peers/new/bin/python",
		"Python with onnx and onnxruntime, which loads patched files; empty for none")
	limit := flag.Duration("limit", 10*time.Minute, "that one file may take")
	asJSON := flag.Bool("json", false, "print JSON instead of a Markdown table")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: zoo [flags] FOLDER...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *one != "" {
		if err := json.NewEncoder(os.Stdout).Encode(look(ctx, *one, *python)); err != nil {
			fatal(err)
		}
		return
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	rows, err := walk(ctx, flag.Args(), *python, *limit)
	if err != nil {
		fatal(err)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(rows)
	} else {
		err = table(os.Stdout, rows)
	}
	if err != nil {
		fatal(err)
	}
	if !good(rows) {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "zoo:", err)
	os.Exit(2)
}

// good reports that nothing is wrong, and that there was something to look at.
func good(rows []row) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows,
		func(r row) bool { return r.Verdict != right && r.Verdict != refused })
}

// walk gives a row for each ONNX file below the folders, in the order of their paths; files of equal content have one.
func walk(ctx context.Context, folders []string, python string, limit time.Duration) (rows []row, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files, err := find(folders)
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		fmt.Fprintf(os.Stderr, "%d of %d: %s\n", i+1, len(files), f.path)
		rows = append(rows, child(ctx, self, f.path, python, limit))
		rows[i].Path = f.name
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// A file is an ONNX file, with its path and that below the folder it was found in.
type file struct{ path, name string }

func find(folders []string) (files []file, err error) {
	seen := map[[sha256.Size]byte]bool{}
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".onnx") {
				return err
			}
			sum, err := hash(path)
			if err != nil || seen[sum] {
				return err
			}
			seen[sum] = true
			name, err := filepath.Rel(folder, path)
			files = append(files, file{path, name})
			return err
		}); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func hash(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// child is the row of a file, made in a process of its own.
func child(ctx context.Context, self, path, python string, limit time.Duration) row {
	within, done := context.WithTimeout(ctx, limit)
	defer done()
	var out, talk bytes.Buffer
	cmd := exec.CommandContext(within, self, "-one", path, "-python", python)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &talk, 5*time.Second
	err := cmd.Run()
	var r row
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &r)
	}
	switch {
	case within.Err() != nil:
		return row{Verdict: broken, Problem: fmt.Sprintf("it took longer than %v", limit)}
	case err != nil:
		return row{Verdict: broken, Problem: fmt.Sprintf("its process ended with %v: %s", err, tail(talk.String()))}
	}
	return r
}

// tail is the last line of a process's words.
func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return cmp.Or(lines[len(lines)-1], "it said nothing")
}
