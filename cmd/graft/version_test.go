package main

import (
	"runtime/debug"
	"testing"
)

// TestSource: a build of the source says its commit, and whether the tree was another.
func TestSource(t *testing.T) {
	built := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"},
		{Key: "vcs.time", Value: "2026-11-28T03:06:00Z"}, {Key: "vcs.modified", Value: "false"}}}
	if revision, time := source(built); revision != "0123abcd" || time != "2026-11-28T03:06:00Z" {
		t.Errorf("%q, %q", revision, time)
	}
	built.Settings[2].Value = "true"
	if revision, _ := source(built); revision != "0123abcd-dirty" {
		t.Errorf("of a changed tree: %q", revision)
	}
	if revision, time := source(nil); revision != "" || time != "" {
		t.Errorf("of nothing: %q, %q", revision, time)
	}
}
