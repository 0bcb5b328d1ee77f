// Command soak runs graft for long while everything around it goes wrong.
//
//	go run ./tests/soak -deaths 1000 -load 1h -out tests/soak/results/DATE.txt
//
// Deaths: `graft plugin install`, `plugin verify`, `ab` and `generate` run again and again, and at a random moment
// the command or one of its child processes is killed, or the command is asked to end. It must end soon, leave no
// process behind, and the store and the outputs must be whole: the old ones, the new ones, or none. Interrupted
// generations are resumed until they are complete, and must then equal what an undisturbed run wrote.
//
// Load: one process takes the cores for four fifths of the time with sessions and generations,
// cancels calls at random, opens generators anew under running calls, and overwrites, cuts short and deletes model
// files under sessions that use them. Every answer is compared with one computed before. Memory, descriptors and
// processes must stay as they were.
//
// The seed is printed; the same seed makes the same choices, though not at the same moments. The exit code is 1 when
// anything was wrong. The test of this package runs both for seconds.
package main
