// Package must holds tests to what a call's error has to be: none, so that a test goes on with what the call gave, or
// one that says what is wanted of it.
package must

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Succeed ends the test where there is an error. The context, if there is one, stands before the error.
func Succeed(t testing.TB, err error, context ...any) {
	t.Helper()
	if err != nil && len(context) > 0 {
		t.Fatalf("%s: %v", strings.TrimSuffix(fmt.Sprintln(context...), "\n"), err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Value is what a call gave, of which the test that is named next ends where there is an error:
// must.Value(os.ReadFile(path))(t).
func Value[T any](value T, err error) func(t testing.TB, context ...any) T {
	return func(t testing.TB, context ...any) T {
		t.Helper()
		Succeed(t, err, context...)
		return value
	}
}

// Fail marks the test as failed, which goes on, where an error lacks one of the parts: texts that it has to hold, and
// errors that it has to be (errors.Is); nil is no error.
func Fail(t testing.TB, err error, parts ...any) {
	t.Helper()
	if problem := lacks(err, parts); problem != "" {
		t.Error(problem)
	}
}

// FailExactly is Fail where an error's whole text is wanted.
func FailExactly(t testing.TB, err error, text string, kinds ...error) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("found error\n%v\nneeded\n%s", err, text)
	}
	for _, kind := range kinds {
		Fail(t, err, kind)
	}
}

// Error is the error of a call that gives a value too: must.Fail(t, must.Error(Parse("x")), "found x").
func Error[T any](_ T, err error) error { return err }

// lacks says which part an error has not.
func lacks(err error, parts []any) string {
	for _, part := range parts {
		switch part := part.(type) {
		case nil:
			if err != nil {
				return fmt.Sprintf("found error\n%v\nneeded none", err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Sprintf("found error\n%v\nneeded one that says\n%s", err, part)
			}
		case error:
			if !errors.Is(err, part) {
				return fmt.Sprintf("found error\n%v\nneeded one that is\n%v", err, part)
			}
		default:
			return fmt.Sprintf("a test asks for a %T in an error, needed a string or an error", part)
		}
	}
	return ""
}
