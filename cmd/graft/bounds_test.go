package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/internal/must"
)

// extremes are values that no flag of a number takes, but those that are listed with it.
var extremes = []string{"-1", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e400", "-Inf",
	"NaN", "Inf", "1000000000", "0x7fffffff", "", "1e9h", "-1s", "9223372036854775807GiB"}

// TestFlagsAreBounded: every flag of every command that takes a number has bounds, and refuses what is beyond
// them as a wrong command line, before anything runs.
func TestFlagsAreBounded(t *testing.T) {
	numbers := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "bool", "string", "stringArray", "stringSlice":
				return
			}
			numbers++
			if _, ok := f.Value.(interface{ within() }); !ok {
				t.Errorf("%s --%s takes any %s; add it with between", cmd.CommandPath(), f.Name, f.Value.Type())
				return
			}
			for _, value := range extremes {
				if f.Value.Type() == "uint" && (value == "9223372036854775807" || value == "1000000000") {
					continue // a seed
				}
				var out, talk bytes.Buffer
				args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"="+value, "nowhere")
				tolerance := f.Value.Type() == "float" && (strings.HasPrefix(value, "9") || strings.HasPrefix(value, "1"))
				if code := run(args, &out, &talk); code != exitUsage && !(tolerance && code == exitError) ||
					!strings.Contains(talk.String(), "--"+f.Name) && !tolerance {
					t.Errorf("%q: exit code %d, %s", args, code, talk.String())
				}
			}
		})
	}
	walk((&cli{}).root())
	if numbers < 20 {
		t.Errorf("found %d flags of numbers", numbers)
	}
}

// TestLengths: the refusal of a length says between which it may be.
func TestLengths(t *testing.T) {
	for _, length := range []string{"9223372036854775807", "2147483648", "-1", "", "1e3"} {
		var out, talk bytes.Buffer
		code := run([]string{"ab", "model.onnx", "--dim", "batch=" + length}, &out, &talk)
		if code != exitUsage || !strings.Contains(talk.String(), "--dim batch="+length) ||
			!strings.Contains(talk.String(), "from 0 to 2147483647") {
			t.Errorf("%q: exit code %d, %s", length, code, talk.String())
		}
	}
}

// TestSizes: sizes have bounds too.
func TestSizes(t *testing.T) {
	for _, size := range append(extremes, "0", "1e-9", "NaNGiB", "InfMiB", "-1GiB", "1e300GiB", "9999999999GiB") {
		if size == "" || size == "1000000000" {
			continue
		}
		if n, err := bytesOf("--max-cache", size, 1<<40); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%s: found %d, %v", size, n, err)
		}
	}
	if n, err := bytesOf("--max-cache", "1.5GiB", 1<<40); n != 3<<29 || err != nil {
		t.Errorf("found %d, %v", n, err)
	}
}

// TestSearchFlags: options of the search are within bounds or an error, by flag and by --set.
func TestSearchFlags(t *testing.T) {
	for _, f := range searchFlags {
		if f.name == "language" || f.name == "task" {
			continue
		}
		for _, value := range extremes {
			for _, args := range [][]string{{"--" + strings.ReplaceAll(f.name, "_", "-") + "=" + value},
				{"--set", f.name + "=" + value}} {
				o := generation{values: map[string]*string{}}
				cmd := (&cli{}).generateWith(&o)
				must.Succeed(t, cmd.ParseFlags(args))
				found, err := o.options(cmd, search.Default())
				if err != nil {
					must.Equal(t, exitCode(err), exitUsage, args)
					continue
				}
				for name, n := range map[string]int{"beams": found.NumBeams, "sequences": found.NumReturnSequences,
					"length": found.LengthLimit(0), "n-gram": found.NoRepeatNgramSize} {
					if n < 0 || n > limit.Tokens {
						t.Errorf("%q gives %d %s", args, n, name)
					}
				}
			}
		}
	}
}

// TestGreatestValues: what is the most that flags take runs, without memory or threads by its size alone.
func TestGreatestValues(t *testing.T) {
	alone(t)
	words := filepath.Join(t.TempDir(), "words")
	must.Succeed(t, os.WriteFile(words, []byte("a\n"), 0o644))
	cost := func(args ...string) {
		t.Helper()
		var out, talk bytes.Buffer
		must.Equal(t, run(args, &out, &talk), exitOK, args, talk.String())
	}
	cost("generate", "../../models/g2p", "--input", words, "--workers=1024", "--batch-size=65536",
		"--max-input-tokens=16777216", "--max-cache=1048576GiB", "--max-line=1GiB", "--max-new-tokens=5")
	cost("inspect", "../../models/g2p", "--beam=1024", "--batch-size=65536", "--max-cache=1048576GiB")
}
