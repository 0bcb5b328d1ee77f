package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// between adds a flag whose value is a number from least to most.
func between[N int | int64 | uint64 | float64 | time.Duration](f *pflag.FlagSet, to *N, name string, value, least,
	most N, usage string) {
	*to = value
	f.Var(&bounded[N]{to, least, most}, name, usage)
}

// bounded is the value of such a flag. pflag's own take any number.
type bounded[N int | int64 | uint64 | float64 | time.Duration] struct {
	to          *N
	least, most N
}

func (b *bounded[N]) String() string {
	if b == nil || b.to == nil {
		return ""
	}
	return fmt.Sprint(*b.to)
}

// Type is what the help calls the value, as pflag names it.
func (b *bounded[N]) Type() string {
	switch any(b.least).(type) {
	case float64:
		return "float"
	case uint64:
		return "uint"
	case time.Duration:
		return "duration"
	}
	return "int"
}

// within marks values that have bounds, for tests.
func (b *bounded[N]) within() {}

func (b *bounded[N]) Set(text string) error {
	n, err := parse[N](text)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return err
	}
	if err != nil || !(n >= b.least && n <= b.most) { // NaN is neither
		return outOfBounds(fmt.Sprintf("%v to %v", b.least, b.most))
	}
	*b.to = n
	return nil
}

func parse[N int | int64 | uint64 | float64 | time.Duration](text string) (n N, err error) {
	switch to := any(&n).(type) {
	case *int:
		*to, err = strconv.Atoi(text)
	case *int64:
		*to, err = strconv.ParseInt(text, 10, 64)
	case *uint64:
		*to, err = strconv.ParseUint(text, 10, 64)
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		*to, err = time.ParseDuration(text)
	}
	var number *strconv.NumError
	if errors.As(err, &number) && !errors.Is(err, strconv.ErrRange) {
		err = errors.New("found no number")
	}
	return n, err
}

// outOfBounds is the error of a value that is none of those needed.
type outOfBounds string

func (needed outOfBounds) Error() string { return "needed " + string(needed) }

// flagError is the refusal of a flag, or of its value.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		if like := flagsLike(cmd, unknown.GetSpecifiedName()); len(like) > 0 {
			return misuse(fmt.Sprintf("%v, did you mean %s?", err, strings.Join(like, " or ")), "")
		}
	}
	var value *pflag.InvalidValueError
	var needed outOfBounds
	if errors.As(err, &value) && errors.As(err, &needed) {
		return misuse("--"+value.GetFlag().Name+" "+value.GetValue(), string(needed))
	}
	return misused("", err)
}

// flagsLike are the flags of a command that an unknown one may stand for: the nearest, and those that hold its name.
func flagsLike(cmd *cobra.Command, name string) (like []string) {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	nearest := diagnostic.Nearest(name, names)
	for _, n := range names {
		if n == nearest || len(name) > 3 && strings.Contains(n, name) {
			like = append(like, "--"+n)
		}
	}
	return like
}

// bytesOf reads a size such as 2GiB of at most some bytes; "" is 0.
func bytesOf(flag, size string, most int64) (int64, error) {
	if size == "" {
		return 0, nil
	}
	for _, unit := range []struct {
		suffix string
		bytes  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"", 1}} {
		number, ok := strings.CutSuffix(size, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || n != n || n <= 0 {
			break
		}
		if n *= unit.bytes; n < 1 || n > float64(most) {
			return 0, misuse(flag+" "+size, fmt.Sprintf("a size from 1 byte to %d GiB", most>>30))
		}
		return int64(n), nil
	}
	return 0, misuse(flag+" "+size, "a size such as 2GiB")
}
