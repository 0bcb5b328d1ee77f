package pipeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// Lines reads inputs, one a line, without the ends of lines. A line of more than longest bytes is an error that names
// the file and the line; no more of it is read.
func Lines(name string, r io.Reader, longest int) func() (string, error) {
	b, number := bufio.NewReaderSize(r, 1<<16), 0
	return func() (string, error) {
		number++
		var text []byte
		for {
			part, err := b.ReadSlice('\n')
			text = append(text, part...)
			if len(bytes.TrimRight(text, "\r\n")) > longest {
				return "", &diagnostic.Error{Path: name, Found: fmt.Sprintf("line %d has more than %d bytes", number, longest),
					Needed: "shorter lines", Fix: "split it, or allow more (--max-line)"}
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if errors.Is(err, io.EOF) && len(text) > 0 {
				err = nil
			}
			return string(bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))), err
		}
	}
}

// Output is a file of results, one a line, written whole line by whole line.
type Output struct {
	file *os.File
	path string
}

// Create makes an output file; one that is there is refused.
func Create(path string) (*Output, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: a file is there already; continue it with --resume, or take it away", path)
	}
	if err != nil {
		return nil, err
	}
	return &Output{f, path}, nil
}

// Resume opens an output file to be continued and says how many lines it holds.
// A last line that was cut short is taken off. A file that is not there is made.
func Resume(path string) (out *Output, lines int, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	whole, at := int64(0), int64(0)
	b := bufio.NewReaderSize(f, 1<<16)
	for {
		text, err := b.ReadSlice('\n')
		at += int64(len(text))
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		lines, whole = lines+1, at
	}
	if err := f.Truncate(whole); err != nil {
		return nil, 0, err
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return nil, 0, err
	}
	return &Output{f, path}, lines, nil
}

// Write writes one line. Ends of lines inside the text become spaces.
func (o *Output) Write(text string) error {
	_, err := o.file.WriteString(OneLine(text) + "\n")
	return err
}

// OneLine is a text with spaces for the ends of lines in it.
func OneLine(text string) string { return oneLine.Replace(text) }

var oneLine = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")

// Close brings what was written to the disk and ends the file.
func (o *Output) Close() error { return errors.Join(storage.Sync(o.file), o.file.Close()) }

// Remove takes a file away that nothing was written to.
func (o *Output) Remove() error { return errors.Join(o.file.Close(), os.Remove(o.path)) }

// Skip passes over the first n inputs.
func Skip(read func() (string, error), n int) error {
	for range n {
		if _, err := read(); err != nil {
			return fmt.Errorf("the output has %d lines and the input fewer: they do not belong together", n)
		}
	}
	return nil
}
