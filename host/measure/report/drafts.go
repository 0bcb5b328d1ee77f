package report

// drafts is the table of what the sides' drafts came to; nil where no side has some.
func (f *folder) drafts() *table {
	t := &table{Head: []head{{"side", false}, {"drafted", true}, {"accepted", true}, {"steps", true},
		{"accepted a step", true}, {"draft model's steps", true}}}
	for i := -1; i < len(f.Sides); i++ {
		d := f.of(i).Drafts
		if d == nil {
			continue
		}
		_, own := f.against(i)
		at := own + "/drafts"
		model := text("")
		if d.Model != nil {
			model = count(d.Model.Steps, at+"/model/steps")
		}
		t.Rows = append(t.Rows, []cell{text(f.name(i)), count(d.Drafted, at+"/drafted"), count(d.Accepted, at+"/accepted"),
			count(d.Steps, at+"/steps"),
			one(num(d.AcceptedPerStep, at+"/accepted_per_step", fixed(d.AcceptedPerStep, 2))), model})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
