package plugin

import (
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// OpenApart is Open of a plugin for the CPU whose code is never in this process: describe has another process load
// the library with p.SHA256 and say what it says of itself. What needs code is an error of such a plugin; see Apart.
func OpenApart(folder string, opts OpenOptions, describe func(p *Plugin) (*Info, error)) (*Plugin, error) {
	p, err := prepare(folder, "")
	if err != nil {
		return nil, err
	}
	defer p.release()
	if err := p.require(opts); err != nil {
		return nil, err
	}
	if p.Info, err = describe(p); err != nil {
		return nil, err
	}
	p.apart = true
	return p, p.agree()
}

// Without is a loaded plugin as OpenApart opens it, for those that have its code run elsewhere.
func (p *Plugin) Without() *Plugin {
	return &Plugin{Folder: p.Folder, Path: p.Path, SHA256: p.SHA256, Manifest: p.Manifest, Variant: p.Variant,
		Info: p.Info, note: p.note, apart: true}
}

// Apart reports that the plugin's code runs in another process.
func (p *Plugin) Apart() bool { return p.apart }

// elsewhere refuses what needs the plugin's code here.
func (p *Plugin) elsewhere(what string) error {
	if !p.apart {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path,
		Found:  "cannot do " + what + " here: plugin " + p.Manifest.Name + " is isolated",
		Needed: "its code in this process", Fix: "use the plugin without isolation"}
}
