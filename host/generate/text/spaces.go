package text

import "strings"

// spaceRules are replacements made one after the other, each over the whole text.
type spaceRules []struct{ old, new string }

func (rules spaceRules) Replace(s string) string {
	if !strings.Contains(s, " ") {
		return s
	}
	for _, r := range rules {
		s = strings.ReplaceAll(s, r.old, r.new)
	}
	return s
}

// wordPieceSpaces is the cleanup of the WordPiece decoder of tokenizers, a token at a time.
var wordPieceSpaces = spaceRules{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
	{" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// cleanSpaces is clean_up_tokenization_spaces of transformers.
var cleanSpaces = spaceRules{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
	{" 'm", "'m"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// inSpaceRules are the bytes of cleanSpaces. No rule reads or writes any other
// byte, so the text before one is cleaned whatever follows.
const inSpaceRules = " .?!,'ntmsver"

// cleaner is cleanSpaces over a stream.
type cleaner struct {
	next sink
	held string
}

func cleanDecoder(next sink) sink { return &cleaner{next: next} }

func (c *cleaner) part(s string) {
	s = c.held + s
	cut := len(s)
	for cut > 0 && strings.IndexByte(inSpaceRules, s[cut-1]) >= 0 {
		cut--
	}
	c.held = s[cut:]
	if cut > 0 {
		c.next.part(cleanSpaces.Replace(s[:cut]))
	}
}

func (c *cleaner) end() {}

func (c *cleaner) finish() {
	if c.held != "" {
		c.next.part(cleanSpaces.Replace(c.held))
		c.held = ""
	}
	c.next.end()
	c.next.finish()
}
