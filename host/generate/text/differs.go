package text

import "fmt"

// Differs says where the vocabularies of two tokenizers differ first, "" where they do not: an id then stands for the
// same token in both, so that one's ids may be read by the other's model. How a text is cut into tokens is not
// compared.
func (t *Tokenizer) Differs(other *Tokenizer) string {
	for id := range int32(max(t.size(), other.size())) {
		a, has := t.token(id)
		b, hasOther := other.token(id)
		if has != hasOther || a != b {
			return fmt.Sprintf("token %d is %s, and %s in %s", id, shown(a, has), shown(b, hasOther), other.path)
		}
	}
	if t.target != nil && other.target != nil {
		return t.target.Differs(other.target)
	}
	if (t.target == nil) != (other.target == nil) {
		return "one of the two has a vocabulary for each of two languages"
	}
	return ""
}

func shown(token string, has bool) string {
	if !has {
		return "none"
	}
	return fmt.Sprintf("%.40q", token)
}
