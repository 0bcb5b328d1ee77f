//go:build linux

package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// scribbled is what a child is to try with a path.
type scribbled struct{ What, Path, Other string }

func init() {
	tasks["scribble"] = Handle(func(_ context.Context, s scribbled) (string, error) {
		var err error
		switch s.What {
		case "write":
			err = os.WriteFile(s.Path, []byte("x"), 0o600)
		case "folder":
			err = os.Mkdir(s.Path, 0o700)
		case "pipe":
			err = unix.Mkfifo(s.Path, 0o600)
		case "link":
			err = os.Symlink(s.Other, s.Path)
		case "hard link":
			err = os.Link(s.Other, s.Path)
		case "move":
			err = os.Rename(s.Other, s.Path)
		case "remove":
			err = os.Remove(s.Path)
		}
		return fmt.Sprint(err), nil
	})
	tasks["fill"] = Handle(func(_ context.Context, s scribbled) (int, error) {
		block := make([]byte, 1<<20)
		for i := 0; ; i++ {
			f, err := os.Create(fmt.Sprintf("%s/%d", s.Path, i))
			if err != nil {
				return i, err
			}
			if s.What == "bytes" {
				for range 8 {
					if _, err := f.Write(block); err != nil {
						return i, err
					}
				}
			}
			f.Close()
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestScratch: a child writes and makes files in its scratch folder, and nothing else there or elsewhere, by
// whichever layer the system allows. A folder, a pipe or a link in it is a matter of Landlock alone.
func TestScratch(t *testing.T) {
	for _, without := range [][]string{all, noNamespaces, {LayerLandlock}} {
		t.Run("without "+strings.Join(without, ", "), func(t *testing.T) {
			outside := t.TempDir()
			scratch := filepath.Join(outside, "scratch")
			must.Succeed(t, os.Mkdir(scratch, 0o700))
			there := filepath.Join(outside, "there")
			must.Succeed(t, os.WriteFile(there, []byte("as it was"), 0o600))
			child, err := Start(context.Background(), Options{Subject: "/p/libtoy.so", Scratch: scratch, without: without})
			must.Succeed(t, err)
			defer child.Close()
			if lacks := missing(child, without); lacks != "" {
				t.Skipf("this system lacks layers that the outcome rests on: %s", lacks)
			}
			for _, test := range []struct {
				try      scribbled
				may      bool
				landlock bool // it alone refuses
			}{
				{try: scribbled{"write", filepath.Join(scratch, "profile.json"), ""}, may: true},
				{try: scribbled{"write", filepath.Join(scratch, "profile.json"), ""}, may: true},
				{try: scribbled{"remove", filepath.Join(scratch, "profile.json"), ""}, landlock: true},
				{try: scribbled{"folder", filepath.Join(scratch, "folder"), ""}, landlock: true},
				{try: scribbled{"pipe", filepath.Join(scratch, "pipe"), ""}, landlock: true},
				{try: scribbled{"link", filepath.Join(scratch, "link"), there}, landlock: true},
				{try: scribbled{"hard link", filepath.Join(scratch, "hard"), there}},
				{try: scribbled{"move", filepath.Join(outside, "out"), filepath.Join(scratch, "profile.json")}},
				{try: scribbled{"move", filepath.Join(scratch, "in"), there}},
				{try: scribbled{"write", there, ""}},
				{try: scribbled{"write", filepath.Join(outside, "new"), ""}},
				{try: scribbled{"write", filepath.Join(scratch, "..", "new"), ""}},
				{try: scribbled{"remove", there, ""}},
				{try: scribbled{"write", filepath.Join(os.TempDir(), fmt.Sprintf("graft-scribble-%d", os.Getpid())), ""}},
			} {
				if test.landlock && slices.Contains(without, LayerLandlock) {
					continue
				}
				var got string
				must.Succeed(t, child.Run(context.Background(), "scribble", test.try, &got))
				must.Equal(t, got == "<nil>", test.may, test.try.What, test.try.Path, got)
			}
			if data, err := os.ReadFile(there); err != nil || string(data) != "as it was" {
				t.Errorf("a file outside holds %q, %v", data, err)
			}
		})
	}
}

// TestScratchIsBounded: what fills its scratch folder is ended, by bytes and by files, also where each file is small.
func TestScratchIsBounded(t *testing.T) {
	for what, want := range map[string]string{"bytes": "took more than 0.03125 GiB of files",
		"files": "took more than 256 files"} {
		for _, without := range [][]string{all, noNamespaces} {
			scratch := t.TempDir()
			child := must.Value(Start(context.Background(),
				Options{Subject: "/p/libtoy.so", Scratch: scratch, ScratchBytes: 32 << 20, without: without}))(t)
			var n int
			err := child.Run(context.Background(), "fill", scribbled{What: what, Path: scratch}, &n)
			child.Close()
			must.Fail(t, err, ErrEnded, want)
		}
	}
}

// TestNoScratch: without a scratch folder no file is made anywhere.
func TestNoScratch(t *testing.T) {
	folder := t.TempDir()
	child := must.Value(Start(context.Background(), Options{Subject: "/p/libtoy.so"}))(t)
	defer child.Close()
	if lacks := missing(child, nil); strings.Contains(lacks, LayerLandlock) && strings.Contains(lacks, LayerNamespaces) {
		t.Skipf("this system lacks %s", lacks)
	}
	var got string
	if err := child.Run(context.Background(), "scribble", scribbled{"write", filepath.Join(folder, "new"), ""},
		&got); err != nil || got == "<nil>" {
		t.Errorf("%s, %v", got, err)
	}
}
