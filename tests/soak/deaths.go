package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a command may live on after its worker or itself was told to end: more than its own
// deadlines, and so much more than it needs that a busy machine makes no difference.
const patience = 90 * time.Second

// mark is the environment variable by which what a command started is found.
const mark = "GRAFT_SOAK_RUN"

// deaths is a series of interrupted commands around one store.
type deaths struct {
	command, root, folder string
	random                *rand.Rand
	plugin                string // what is installed and verified
	inputs                string // of generate
	complete              []byte // what generate writes undisturbed
	whole                 map[string]time.Duration
	runs                  int
	wrong                 []string
}

// kinds are the commands that are interrupted.
var kinds = []string{"install", "verify", "ab", "generate"}

// victims are the ways to end one: a child process or the command killed, or the command asked to end.
var victims = []string{"worker", "command", "asked"}

// requests are the signals that ask a command to end.
var requests = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}

func runDeaths(w io.Writer, root, command string, n int, seed uint64) (int, error) {
	folder, err := os.MkdirTemp("", "soak-deaths-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	d := &deaths{command: filepath.Join(folder, "graft"), root: root, folder: folder,
		random: rand.New(rand.NewPCG(seed, 1)),
		plugin: filepath.Join(root, "build/plugins/fused-gelu"), whole: map[string]time.Duration{}}
	// Beside a copy there are no plugins.
	program, err := os.ReadFile(command)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(d.command, program, 0o700); err != nil {
		return 0, err
	}
	if err := d.prepare(); err != nil {
		return 0, err
	}
	counts := map[string]int{}
	for range n {
		kind, victim := kinds[d.random.IntN(len(kinds))], victims[d.random.IntN(len(victims))]
		got, err := d.interrupt(kind, victim)
		if err != nil {
			return 0, err
		}
		counts[kind+" "+got]++
	}
	if err := d.finish(); err != nil {
		return 0, err
	}
	fmt.Fprintf(w, "\n%d deaths, %d wrong\n", n, len(d.wrong))
	for _, kind := range kinds {
		fmt.Fprintf(w, "  %-9s", kind)
		for _, victim := range append(slices.Clone(victims), "late") {
			fmt.Fprintf(w, "  %s %d", victim, counts[kind+" "+victim])
		}
		fmt.Fprintln(w)
	}
	for _, s := range d.wrong {
		fmt.Fprintln(w, "WRONG:", s)
	}
	return len(d.wrong), nil
}

// blame notes what was wrong.
func (d *deaths) blame(format string, args ...any) {
	d.wrong = append(d.wrong, fmt.Sprintf("run %d: ", d.runs)+fmt.Sprintf(format, args...))
}

// prepare runs every command undisturbed: to know how long it takes and what it writes.
func (d *deaths) prepare() error {
	text, err := os.ReadFile(filepath.Join(d.root, "models/g2p/held_out.txt"))
	if err != nil {
		return err
	}
	var words bytes.Buffer
	for i, line := range strings.Split(string(text), "\n") {
		if word, _, ok := strings.Cut(line, "\t"); ok && i < 256 {
			fmt.Fprintln(&words, word)
		}
	}
	for _, name := range []string{"temporary", "data", "outputs"} {
		if err := os.Mkdir(filepath.Join(d.folder, name), 0o700); err != nil {
			return err
		}
	}
	d.inputs = filepath.Join(d.folder, "inputs.txt")
	if err := os.WriteFile(d.inputs, words.Bytes(), 0o600); err != nil {
		return err
	}
	for _, kind := range kinds {
		begin := time.Now()
		if err := d.undisturbed(d.arguments(kind)...); err != nil {
			return fmt.Errorf("%s, undisturbed: %w", kind, err)
		}
		d.whole[kind] = time.Since(begin)
	}
	d.complete, err = os.ReadFile(d.output())
	return err
}

func (d *deaths) output() string { return filepath.Join(d.folder, "outputs", "out.txt") }

// arguments are those of a kind of command.
func (d *deaths) arguments(kind string) []string {
	switch kind {
	case "install":
		return []string{"plugin", "install", d.plugin}
	case "verify":
		return []string{"plugin", "verify"}
	case "ab":
		return []string{"ab", filepath.Join(d.root, "models/tiny-gpt2/model.onnx"), "--rounds", "2", "--force"}
	}
	return []string{"generate", filepath.Join(d.root, "models/g2p"), "--input", d.inputs, "--output", d.output(), "--beam",
		"2", "--resume"}
}

// make makes a command in surroundings of its own, marked with the run's number.
func (d *deaths) make(arguments ...string) (cmd *exec.Cmd, said *bytes.Buffer) {
	said = &bytes.Buffer{}
	cmd = exec.Command(d.command, arguments...)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+filepath.Join(d.folder, "data"),
		"TMPDIR="+filepath.Join(d.folder, "temporary"),
		d.marking(), "GRAFT_PLUGIN_PATH=", "GRAFT_PLUGIN_UNVERIFIED=")
	if arguments[0] != "plugin" { // whatever became of the store
		cmd.Env = append(cmd.Env, "GRAFT_PLUGIN_PATH="+filepath.Join(d.root, "build/plugins"), "GRAFT_PLUGIN_UNVERIFIED=1")
	}
	cmd.Stdout, cmd.Stderr = said, said
	// What a killed command leaves behind may hold the pipe of its output open.
	cmd.WaitDelay = patience
	return cmd, said
}

func (d *deaths) marking() string {
	return mark + "=" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(d.runs)
}

func (d *deaths) undisturbed(arguments ...string) error {
	cmd, said := d.make(arguments...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(arguments, " "), err, said)
	}
	return nil
}

// interrupt runs one command, ends it or its worker at a random moment, and looks at what is left. It returns
// who died, "late" when the command was done before.
func (d *deaths) interrupt(kind, victim string) (string, error) {
	d.runs++
	if kind == "install" && d.random.IntN(2) == 0 {
		_ = d.undisturbed("plugin", "remove", "fused-gelu") // it may be absent
	}
	if kind == "verify" {
		if err := d.undisturbed(d.arguments("install")...); err != nil {
			d.blame("installing again: %v", err)
		}
	}
	if kind == "generate" {
		os.Remove(d.output())
	}
	cmd, said := d.make(d.arguments(kind)...)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	time.Sleep(time.Duration(d.random.Float64() * float64(d.whole[kind])))
	var late bool
	select {
	case err := <-ended:
		late = true
		ended <- err
	default:
	}
	if !late {
		victim = d.kill(cmd.Process.Pid, victim)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		d.blame("%s, %s killed: it did not end within %v: %s", kind, victim, patience, said)
		_ = cmd.Process.Kill()
		<-ended
	}
	code := cmd.ProcessState.ExitCode()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case victim == "asked" && status.Signaled() && slices.Contains(requests, status.Signal()): // before it listened
	case code > 6 && code != 130:
		d.blame("%s, %s killed: exit code %d: %s", kind, victim, code, said)
	case code != 0 && victim != "command" && said.Len() == 0:
		d.blame("%s, %s killed: exit code %d (%v) silently", kind, victim, code, cmd.ProcessState)
	case bytes.Contains(said.Bytes(), []byte("goroutine ")):
		d.blame("%s, %s killed: a panic: %s", kind, victim, said)
	}
	d.survivors(kind, victim)
	d.inspect(kind, victim, code == 0)
	if late {
		return "late", nil
	}
	return victim, nil
}

// kill ends a process and says whose it was: a command without a child dies itself.
func (d *deaths) kill(pid int, victim string) string {
	switch victim {
	case "worker":
		if all := children(pid); len(all) > 0 {
			_ = syscall.Kill(all[d.random.IntN(len(all))], syscall.SIGKILL)
			return victim
		}
	case "asked":
		_ = syscall.Kill(pid, requests[d.random.IntN(len(requests))])
		return victim
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return "command"
}

// children are the child processes of a process.
func children(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// survivors waits until no process of this run is left.
func (d *deaths) survivors(kind, victim string) {
	var left []int
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if left = d.alive(); len(left) == 0 {
			return
		}
	}
	d.blame("%s, %s killed: processes live on: %v", kind, victim, left)
}

// alive are the processes whose environment has this run's mark.
func (d *deaths) alive() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), d.marking()) {
			all = append(all, pid)
		}
	}
	return all
}

// inspect checks that the store and the output are whole.
func (d *deaths) inspect(kind, victim string, succeeded bool) {
	cmd, said := d.make("plugin", "list", "-o", "json")
	if err := cmd.Run(); err != nil {
		d.blame("%s, %s killed: the store cannot be listed: %v: %s", kind, victim, err, said)
	} else if !json.Valid(said.Bytes()) {
		d.blame("%s, %s killed: the list of the store is no JSON: %s", kind, victim, said)
	} else if bytes.Contains(said.Bytes(), []byte(`"error"`)) {
		d.blame("%s, %s killed: the store is not whole: %s", kind, victim, said)
	}
	if kind != "generate" {
		return
	}
	got, err := os.ReadFile(d.output())
	switch {
	case errors.Is(err, os.ErrNotExist) && !succeeded:
	case err != nil:
		d.blame("generate, %s killed: %v", victim, err)
	case succeeded && !bytes.Equal(got, d.complete):
		d.blame("generate succeeded with another output")
	}
	if err := d.undisturbed(d.arguments(kind)...); err != nil {
		d.blame("generate, %s killed: going on: %v", victim, err)
	} else if got, _ = os.ReadFile(d.output()); !bytes.Equal(got, d.complete) {
		d.blame("generate, %s killed: what was resumed is not what an undisturbed run writes", victim)
	}
}

// finish runs everything undisturbed again, after which nothing of the killed runs may be left.
func (d *deaths) finish() error {
	d.runs++
	for _, kind := range kinds {
		if err := d.undisturbed(d.arguments(kind)...); err != nil {
			d.blame("%s after all deaths: %v", kind, err)
		}
	}
	// ONNX Runtime writes files of its own there.
	left, err := filepath.Glob(filepath.Join(d.folder, "temporary", "graft*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		d.blame("the temporary folder still holds %s", filepath.Base(path))
	}
	staged, err := filepath.Glob(filepath.Join(d.folder, "data", "graft", "plugins", ".*"))
	if err != nil {
		return err
	}
	for _, path := range staged {
		if filepath.Base(path) == ".versions" {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			d.blame("the store still holds %s", filepath.Base(path))
		}
	}
	versions, err := filepath.Glob(filepath.Join(d.folder, "data", "graft", "plugins", ".versions", "*", "*"))
	if err != nil {
		return err
	}
	if len(versions) != 1 { // the one plugin, whose files are the same in all installs
		d.blame("the store holds the versions %q", versions)
	}
	return nil
}
