package main

import (
	"io"
	"maps"
	"os"
	"testing"
)

// The commands that pack, sign and trust. ARCHIVE, KEY and PUBLIC stand for files that ready makes.
func init() {
	maps.Copy(everyCommand, map[string][]string{
		"graft plugin keygen":       {"OUT --no-password", "MODEL --no-password", "OUT --password-file nowhere"},
		"graft plugin pack":         {"PLUGIN --output OUT", "MODEL", "TEXTS"},
		"graft plugin sign":         {"ARCHIVE --key KEY", "MODEL --key MODEL", "ARCHIVE --key MODEL"},
		"graft plugin trust":        {"", "MODEL"},
		"graft plugin trust add":    {"PUBLIC --name someone", "PUBLIC --for MODEL", "PUBLIC --name MODEL", "MODEL"},
		"graft plugin trust list":   {""},
		"graft plugin trust remove": {"someone", "MODEL"},
	})
}

// signable is what the names of files have more that are signed, or sign.
const signable = "-signable"

// ready makes the files that a command needs, and what it takes away.
func (s *subjects) ready(t *testing.T, path string) {
	t.Helper()
	must := func(line string) {
		t.Helper()
		if args := s.arguments("graft", line); run(args, io.Discard, io.Discard) != exitOK {
			t.Fatalf("cannot make ready: %q", args)
		}
	}
	switch path {
	case "graft plugin keygen":
		os.Remove(s.out + publicSuffix)
	case "graft plugin sign", "graft plugin trust add", "graft plugin trust remove":
		if _, err := os.Stat(s.out + signable + ".tar.gz"); err != nil {
			must("plugin keygen KEY --no-password")
			must("plugin pack ../../build/plugins/fused-gelu --output ARCHIVE")
		}
	}
	if path == "graft plugin trust remove" {
		must("plugin trust add PUBLIC --name someone")
	}
}
