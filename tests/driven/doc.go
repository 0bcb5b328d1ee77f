// Package driven is about operators as a model drives them: a model's own nodes of graft's domain reach no
// kernel, and what it can reach holds against every shape, list and attribute (fuzz, see README.md).
package driven
