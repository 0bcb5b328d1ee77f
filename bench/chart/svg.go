package main

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
)

// Sizes in pixels: labels stand left of the plot, figures right of it.
const (
	width               = 900
	plotLeft, plotRight = 330, 625
	rowHeight           = 20
	headHeight          = 30
	top                 = 62
	foot                = 58
)

// style has the colours for white and for dark pages; the picture has a background of its own.
const style = `<style>
.page{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0}.one{stroke:#818b98}.mark{fill:#0969da}.line{stroke:#0969da}
text{font-family:-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:12px}
@media (prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#9198a1}.mark{fill:#4493f8}.line{stroke:#4493f8}}
</style>
`

// svg draws the chart. The axis is logarithmic, so that twice as fast and four times as fast are one distance apart.
func (c *chart) svg() []byte {
	low, high, rows := 1.0, 2.0, 0
	for _, g := range c.groups {
		for _, r := range g.rows {
			low, high = min(low, r.low), max(high, r.high)
			rows++
		}
	}
	high *= 1.05
	x := func(v float64) float64 {
		return plotLeft + (plotRight-plotLeft)*math.Log(v/low)/math.Log(high/low)
	}
	height := top + len(c.groups)*headHeight + rows*rowHeight + foot
	var b bytes.Buffer
	text := func(class string, x, y float64, anchor, size, s string) {
		fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", class, x, y, anchor, size,
			html.EscapeString(s))
	}
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Speed-up with graft">`+"\n%s",
		width, height, style)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d" rx="6"/>`+"\n", width, height)
	text("ink", 20, 28, "start", ` style="font-size:16px;font-weight:600"`, "Speed-up with graft")
	text("soft", 20, 47, "start", "",
		"How many times as fast; right is better. Dot: ratio of medians. Line: 95 % interval. n: timed runs of each side.")
	bottom := float64(height - foot + 4)
	ticks := map[float64]string{}
	for tick := math.Exp2(math.Ceil(math.Log2(low))); tick <= high; tick *= 2 {
		ticks[tick] = "grid"
		text("soft", x(tick), bottom+15, "middle", "", fmt.Sprintf("%gx", tick))
	}
	ticks[1] = "one"
	text("soft", plotRight+12, bottom+15, "start", "", "times as fast, logarithmic axis")
	y := float64(top)
	for _, g := range c.groups {
		y += headHeight
		text("ink", 20, y-8, "start", ` style="font-weight:600"`, g.heading)
		for _, tick := range slices.Sorted(maps.Keys(ticks)) {
			fmt.Fprintf(&b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n",
				ticks[tick], x(tick), y, x(tick), y+float64(len(g.rows)*rowHeight))
		}
		for _, r := range g.rows {
			mid := y + rowHeight/2
			text("ink", 32, mid+4, "start", "", r.label)
			fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x(1), mid, x(r.speedup), mid)
			fmt.Fprintf(&b, `<line class="line" stroke-width="2" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x(r.low), mid,
				x(r.high), mid)
			fmt.Fprintf(&b, `<circle class="mark" cx="%.1f" cy="%.1f" r="4.5"/>`+"\n", x(r.speedup), mid)
			text("ink", plotRight+50, mid+4, "end", ` style="font-weight:600"`, fmt.Sprintf("%.2fx", r.speedup))
			text("soft", plotRight+62, mid+4, "start", "", fmt.Sprintf("%s, n = %d", r.detail, r.runs))
			y += rowHeight
		}
	}
	text("soft", 20, float64(height)-14, "start", "", c.foot)
	b.WriteString("</svg>\n")
	return b.Bytes()
}
