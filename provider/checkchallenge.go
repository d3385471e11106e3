package provider

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// A handshake whose answer is a MAC would sign for anyone whatever it is asked
// to, so that only what no delivery looks like may be asked: short, and of
// letters that are no JSON.
var proofPattern = regexp.MustCompile(`^\^\[A-Za-z0-9_=?-\]\{1,(?:[1-9][0-9]?|1[01][0-9]|12[0-8])\}\$$`)

// anyValue in a handshake's when: the value is there, whatever it is.
const anyValue = "*"

func (c *challengeSpec) check(p *problems, f *profileFile) {
	places := []string{inJSON}
	switch c.Method {
	case "", http.MethodPost:
		if !c.Signed {
			p.add("challenge: only handshakes that are signed are supported: set signed")
		}
		if c.Otherwise != 0 {
			p.add("challenge.otherwise is for handshakes that nobody signs")
		}
	case http.MethodGet, http.MethodHead:
		places = []string{inQuery, inHeader}
		if c.Signed || c.Unless != "" {
			p.add("challenge: a %s has no body and no signature: leave signed and unless out", c.Method)
		}
		if c.Otherwise != 0 && (c.Otherwise < 400 || c.Otherwise > 499) {
			p.add("challenge.otherwise must be 4xx")
		}
	default:
		p.add("challenge.method must be GET, HEAD or POST")
	}
	if len(c.When) == 0 && c.Reply.Body != "" || len(c.When) == 0 && c.Signed {
		p.add("challenge: when is empty")
	}
	for from, value := range c.When {
		checkPlace(p, "challenge.when", from, places...)
		c.checkValue(p, f, value)
	}
	if c.Unless != "" {
		checkPlace(p, "challenge.unless", c.Unless, inJSON)
	}
	c.Reply.check(p, "challenge.reply")
	c.checkReply(p, f, places)
}

// checkValue checks a value that is compared: a text, or a setting.
func (c *challengeSpec) checkValue(p *problems, f *profileFile, value string) {
	name, found := strings.CutPrefix(value, "{config:")
	if !found {
		return
	}
	name = strings.TrimSuffix(name, "}")
	if c.Signed || !slices.ContainsFunc(f.Settings, func(s Setting) bool { return s.Name == name }) {
		p.add("challenge.when: {config:%s} is no setting, or the handshake is signed", name)
	}
}

func (c *challengeSpec) checkReply(p *problems, f *profileFile, places []string) {
	t, err := parseTemplate(c.Reply.Body)
	if err != nil {
		p.add("challenge.reply: %w", err)
		return
	}
	echoes, proofs := false, false
	for _, part := range t {
		switch {
		case part.kind == partLiteral:
		case part.kind == partProofHex || part.kind == partProofBase64:
			proofs = true
			if !slices.Contains(places, part.places[0].kind) {
				p.add("challenge.reply: {%s:...} cannot be of %s", part.kind, part.places[0])
			}
		case slices.Contains(places, part.kind) && !part.optional && len(part.places) == 1:
			echoes = true
		default:
			p.add("challenge.reply: only {%s:...} can be echoed", strings.Join(places, ":...} and {"))
		}
	}
	if echoes && !echoPattern.MatchString(c.Pattern) {
		p.add("challenge.pattern must be a character class with a bound, ^[A-Za-z0-9_-]{1,128}$: what is echoed must mean nothing to a browser")
	}
	if !proofs {
		return
	}
	if !proofPattern.MatchString(c.Pattern) {
		p.add("challenge.pattern must be ^[A-Za-z0-9_-]{1,128}$ or shorter: the answer is a MAC, and anything else could be signed for a stranger")
	}
	if slices.ContainsFunc(f.Verify, func(v variantSpec) bool { return v.Kind != kindMAC }) {
		p.add("challenge.reply: a MAC is for schemes that are one")
	}
}
