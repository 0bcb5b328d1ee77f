package main

import (
	"fmt"
	"time"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plan/tune"
)

// roofline is what estimates of times rest on.
type roofline struct {
	BandwidthGB float64    `json:"bandwidth_gb_s"`
	GFLOPS      float64    `json:"gflop_s"`
	Measured    *time.Time `json:"measured"` // null where it is estimated from the number of cores
	// Spread is how far the memory's rounds lay apart, CoreShare the part of a core that a thread got meanwhile; null
	// where it is estimated.
	Spread    *float64 `json:"spread"`
	CoreShare *float64 `json:"core_share"`
}

// recorded is the roofline that was last measured on this machine, or an estimate of it.
func recorded() (plan.Machine, roofline) {
	m := plan.ThisMachine()
	var r roofline
	if f, ok := machine.Recorded("", 0); ok {
		m.Bandwidth, m.FLOPS, m.LastCacheBandwidth, m.LastCacheBytes = f.Bandwidth, f.FLOPS, f.LastCacheBandwidth,
			f.LastCacheBytes
		r.Measured, r.Spread, r.CoreShare = &f.When, &f.Spread, &f.CoreShare
	}
	r.BandwidthGB, r.GFLOPS = m.Bandwidth/1e9, m.FLOPS/1e9
	return m, r
}

// measureRoofline measures this machine's roofline and records it.
func (c *cli) measureRoofline() error {
	set, err := c.load(true)
	if err != nil {
		return err
	}
	_, err = tune.Machine(set.Plugins, plan.Implementations{}.Among(set.Manifests()), machine.Options{Again: true})
	return err
}

// String is the roofline for people, and how old it is.
func (m roofline) String() string {
	s := fmt.Sprintf("a machine that reads %.3g GB/s from memory and computes %.3g GFLOP/s", m.BandwidthGB, m.GFLOPS)
	if m.Measured == nil {
		return s + ", estimated from its cores; graft doctor --measure measures it"
	}
	s += fmt.Sprintf(", measured %s", ago(time.Since(*m.Measured)))
	if *m.CoreShare < machine.BusyShare {
		s += fmt.Sprintf(" while it was busy (a thread got %.0f %% of a core); graft doctor --measure measures it again",
			100**m.CoreShare)
	}
	return s
}

// ago is a time that has passed, for people.
func ago(d time.Duration) string {
	switch days := int(d.Hours() / 24); {
	case d < time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes ago", int(d.Minutes()))
	case days < 2:
		return fmt.Sprintf("%d hours ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", days)
	}
}
