// Package must ends a test at the first error that it does not expect.
package must

import "testing"

// Succeed ends the test where there is an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value is what a call gave, of which the test that is named next ends where there is an error:
// must.Value(os.ReadFile(path))(t).
func Value[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Succeed(t, err)
		return value
	}
}
