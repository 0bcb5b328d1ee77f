package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/signing"
)

// passwordVariable holds the password of a private key, for machines without a terminal.
const passwordVariable = "GRAFT_KEY_PASSWORD"

// maxPasswordBytes bounds a file with a password.
const maxPasswordBytes = 4 << 10

// passwordFlag is where the password of a private key is read from.
func passwordFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "password-file", "",
		"file whose first line is the key's password; $"+passwordVariable+" without it, else the terminal")
}

// password gives the function that asks for the password of a private key: in a file, in the environment, on the
// terminal, where a new one is asked for twice.
func (c *cli) password(ctx context.Context, path, file string, fresh bool) func() (string, error) {
	return func() (string, error) {
		refuse := func(at, found, needed string, err error) (string, error) {
			return "", &diagnostic.Error{Kind: signing.ErrKey, Path: at, Found: found, Needed: needed, Cause: err}
		}
		var word string
		switch {
		case file != "":
			data, err := firstBytes(file)
			if err != nil {
				return refuse(file, "cannot read: "+diagnostic.Cause(err), "a file whose first line is the password of "+path, err)
			}
			word, _, _ = strings.Cut(string(data), "\n")
			word = strings.TrimSuffix(word, "\r")
			path = file
		case os.Getenv(passwordVariable) != "":
			word = os.Getenv(passwordVariable)
		default:
			var err error
			if word, err = c.ask(ctx, path, fresh); err != nil {
				return "", err
			}
		}
		if word == "" {
			return refuse(path, "found an empty password", "one with letters, or --no-password for a key without", nil)
		}
		return word, nil
	}
}

// firstBytes reads a file, or what a shell gives in place of one, such as a pipe.
func firstBytes(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPasswordBytes))
}

// ask reads a password from the terminal, which shows none of it.
func (c *cli) ask(ctx context.Context, path string, fresh bool) (string, error) {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		fix := "use --password-file or " + passwordVariable
		if fresh {
			fix += ", or --no-password for a key without"
		}
		return "", &diagnostic.Error{Kind: signing.ErrKey, Path: path,
			Found: "found no terminal to ask for the key's password", Fix: fix, Cause: err}
	}
	defer terminal.Close()
	read := func(prompt string) (string, error) {
		if _, err := io.WriteString(terminal, prompt); err != nil {
			return "", err
		}
		word, err := unseen(ctx, terminal)
		_, _ = io.WriteString(terminal, "\n")
		return word, err
	}
	word, err := read("password of " + diagnostic.Printable(path) + ": ")
	if err == nil && fresh {
		var again string
		if again, err = read("the same again: "); err == nil && again != word {
			err = errors.New("found two different passwords")
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", &diagnostic.Error{Kind: signing.ErrKey, Path: path, Found: "cannot read the password: " + err.Error(),
			Cause: err}
	}
	return word, nil
}

// unseen reads a line that the terminal does not show. Interrupted, it leaves the terminal as it was, and the line to
// whoever reads next.
func unseen(ctx context.Context, terminal *os.File) (string, error) {
	at := int(terminal.Fd())
	before, err := term.GetState(at)
	if err != nil {
		return "", err
	}
	type line struct {
		text []byte
		err  error
	}
	read, began := make(chan line, 1), make(chan struct{})
	go func() {
		close(began)
		text, err := term.ReadPassword(at)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		// An interrupt may come before the terminal was told to show nothing: what is restored then would be undone.
		<-began
		time.Sleep(50 * time.Millisecond)
		_ = term.Restore(at, before)
		return "", ctx.Err()
	}
}
