package text

// Decoder turns ids into text as they come. The texts that Next returns, and
// then Flush's, are together what Decode returns; none ends within a rune. A
// Decoder is for one goroutine.
type Decoder struct {
	tokens      func(id int64) (token string, ok bool, err error)
	chain       sink
	out         *joined
	skipSpecial bool
	special     map[string]bool
}

// Next takes the next id and returns the text that is complete with it, often "".
// Ids that are no token's are passed over, as Hugging Face's decoders do: a
// model may have more scores than there are tokens. A negative id, or one
// beyond int32, is an error.
func (d *Decoder) Next(id int64) (string, error) {
	token, ok, err := d.tokens(id)
	if err != nil || !ok {
		return "", err
	}
	if d.skipSpecial && d.special[token] {
		return "", nil
	}
	d.chain.part(token)
	d.chain.end()
	return d.take(), nil
}

// Flush ends the text and returns what was still held back.
func (d *Decoder) Flush() string {
	d.chain.finish()
	return d.take()
}

func (d *Decoder) take() string {
	if d.out.Len() == 0 {
		return ""
	}
	s := d.out.String()
	d.out.Reset()
	return s
}
