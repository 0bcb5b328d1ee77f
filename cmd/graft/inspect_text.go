package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/plan"
)

// text prints blocks that are the same in everything but their place once, with
// the number of them.
func (r *inspection) text(w *page) {
	type group struct {
		block inspectedBlock
		nodes []string
	}
	var groups []*group
	for _, b := range r.Blocks {
		key := b.alike()
		i := slices.IndexFunc(groups, func(g *group) bool { return g.block.alike() == key })
		if i < 0 {
			groups = append(groups, &group{block: b})
			i = len(groups) - 1
		}
		groups[i].nodes = append(groups[i].nodes, b.Node)
	}
	replaced := 0
	for _, b := range r.Blocks {
		if b.Operator != "" {
			replaced++
		}
	}
	w.printf("%s: %s recognised, %d would be replaced; %s not recognised\n", r.Model,
		counted(len(r.Blocks), "block"), replaced, counted(len(r.Unrecognised), "softmax or attention node"))
	if left := r.leftOut(); left > 0 {
		w.printf("left out: %d of them, which answer otherwise than the model\n", left)
	}
	if r.Obstacle != "" {
		w.printf("left unchanged: %s\n", r.Obstacle)
	}
	r.interfaceText(w)
	r.Padding.text(w)
	for _, g := range groups {
		b := g.block
		w.printf("\n%d x %s\n", len(g.nodes), b.title())
		if f := b.Facts; f != nil {
			for _, line := range factLines(f) {
				w.println("  " + line)
			}
		}
		if b.Operator != "" {
			plugin := "plugin " + b.Plugin
			if b.Variant != "" && b.Variant != "cpu" {
				plugin += ", variant for " + b.Variant
			}
			w.printf("  -> %s (%s): %s\n", b.Operator, plugin, b.Reason)
			switch {
			case b.Verified:
				w.println("  verified: it answers as the model")
			case b.LeftOut != "":
				w.println("  left out: " + b.LeftOut)
			}
		} else {
			w.printf("  left unchanged: %s\n", b.Reason)
		}
		w.printf("  at %s", g.nodes[0])
		if n := len(g.nodes); n > 1 {
			w.printf(" ... %s", g.nodes[n-1])
		}
		w.println()
	}
	for _, u := range r.Unrecognised {
		w.printf("\nnot recognised: %s (%s)\n  %s\n", u.Node, u.Op, u.Reason)
	}
	w.printf("\nwhole model: %s\n", r.Whole.Whole)
	if r.Whole.Reason == "" {
		w.printf("  on %s\n", r.Whole.Machine)
	}
}

// text says what becomes of hidden tokens, and what could.
func (p *inspectedPadding) text(w *page) {
	if p == nil {
		return
	}
	gain := ""
	if p.Gain > 0 {
		gain = fmt.Sprintf(": expected %.1fx where one token in four is visible", p.Gain)
	}
	switch {
	case p.Computed == plan.VisibleRows && len(p.Outputs) == 0:
		w.printf("\npadding: tokens that %s hides are not computed, and no output depends on them%s\n", p.Mask, gain)
	case p.Computed == plan.VisibleRows:
		w.printf("\npadding: tokens that %s hides are not computed; %s is zeros there%s\n", p.Mask,
			strings.Join(p.Outputs, ", "), gain)
	case p.Mask != "" && len(p.Outputs) > 0:
		w.printf("\npadding: tokens that %s hides are computed, because %s\n  --padding ignore leaves them out, with "+
			"zeros there%s\n", p.Mask, p.Reason, gain)
	case p.Mask != "":
		w.printf("\npadding: tokens that %s hides are computed, because %s\n", p.Mask, p.Reason)
	default:
		w.printf("\npadding: hidden tokens are computed, because %s\n", p.Reason)
	}
}

// interfaceText prints what the model is made of and what goes in and out.
func (r *inspection) interfaceText(w *page) {
	var sets []string
	for _, o := range r.Opsets {
		sets = append(sets, fmt.Sprintf("%s %d", o.Domain, o.Version))
	}
	made := ""
	if r.Producer != "" {
		made = ", made by " + r.Producer
	}
	w.printf("opset %s%s\n\n", strings.Join(sets, ", "), made)
	var rows [][]string
	add := func(kind string, list []inspectedValue) {
		for _, group := range numbered(list) {
			role := string(group.Role)
			if what := group.counts(); what != "" {
				role += " (" + what + ")"
			}
			rows = append(rows, []string{kind, group.Name, group.Type, group.shape(), role})
			kind = ""
		}
	}
	add("inputs", r.Inputs)
	add("outputs", r.Outputs)
	w.table(rows)
}

// shape is "[batch_size, 128]".
func (v inspectedValue) shape() string {
	if v.Shape == nil {
		return "[...]"
	}
	dims := make([]string, len(v.Shape))
	for i, d := range v.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// counts is what the axes count, "" where nothing is known.
func (v inspectedValue) counts() string {
	known := false
	var list []string
	for _, l := range v.Counts {
		known = known || l != roles.Unknown
		list = append(list, cmp.Or(string(l), "-"))
	}
	if !known {
		return ""
	}
	return strings.Join(list, ", ")
}

// numbered joins values that differ in one number of their names alone, as those of layers do:
// "past_key_values.0.key" to "past_key_values.11.key" are one.
func numbered(list []inspectedValue) (groups []inspectedValue) {
	type run struct{ first, last string }
	at := map[string]int{}
	runs := map[int]run{}
	for _, v := range list {
		pattern := layerNumber.ReplaceAllString(v.Name, "#")
		key := fmt.Sprint(pattern, v.Type, v.shape(), v.Role, v.Counts)
		i, there := at[key]
		number := layerNumber.FindString(v.Name)
		if !there || strings.Count(pattern, "#") != 1 {
			at[key] = len(groups)
			runs[len(groups)] = run{number, number}
			groups = append(groups, v)
			continue
		}
		runs[i] = run{runs[i].first, number}
	}
	for i := range groups {
		if r := runs[i]; r.first != r.last {
			groups[i].Name = layerNumber.ReplaceAllString(groups[i].Name, r.first+"..."+r.last)
		}
	}
	return groups
}

var layerNumber = regexp.MustCompile(`[0-9]+`)

func (b inspectedBlock) title() string {
	if b.Facts == nil {
		return b.Kind + " of " + b.Pattern
	}
	return b.Facts.Type + " " + b.Kind
}

// alike is everything that is said of a block but names of its own.
func (b inspectedBlock) alike() string {
	b.Node = ""
	if b.Facts != nil {
		f := *b.Facts
		f.Projections, f.Past = nil, nil
		b.Facts = &f
	}
	j, err := json.Marshal(b)
	if err != nil {
		return b.Reason
	}
	return string(j)
}

func factLines(f *blocks.Attention) []string {
	heads := fmt.Sprintf("%d heads of %d", f.Heads, f.HeadSize)
	if f.KVHeads != f.Heads {
		heads += fmt.Sprintf(", %d of keys and values", f.KVHeads)
	}
	if f.ValueSize != f.HeadSize {
		heads += fmt.Sprintf(", values of %d", f.ValueSize)
	}
	lines := []string{fmt.Sprintf("%s, scale %.6g, %s, exported as %s", heads, f.Scale, f.DType, f.Form)}
	mask := "no mask"
	if f.Mask != nil && len(f.Mask.Kinds) > 0 {
		mask = "mask " + strings.Join(f.Mask.Kinds, " and ")
		if len(f.Mask.Sources) > 0 {
			mask += " from " + strings.Join(f.Mask.Sources, ", ")
		}
	}
	if f.Causal {
		mask += ", causal"
	}
	if f.Window > 0 {
		mask += fmt.Sprintf(", window %d", f.Window)
	}
	lines = append(lines, mask+", positions "+f.Positions)
	if f.Past != nil {
		lines = append(lines, "past is an input of the model, "+f.PastLayout)
	}
	return lines
}
