package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// chunk is how much of a canary is searched for: less than 16 bytes of it
// could be there by chance, and a leak need not be whole.
const chunk = 16

// canaries are values that no output may hold, with what each one is.
type canaries map[[chunk]byte]string

// add marks a text. Short ones cannot be told from chance.
func (c canaries) add(what, text string) {
	if len(text) < chunk {
		panic("a canary of less than 16 bytes: " + what)
	}
	c[[chunk]byte([]byte(text[:chunk]))] = what
}

// addBytes marks bytes in every form in which they may be written.
func (c canaries) addBytes(what string, raw []byte) {
	c.add(what+", raw", string(raw))
	c.add(what+", hex", hex.EncodeToString(raw))
	c.add(what+", upper-case hex", strings.ToUpper(hex.EncodeToString(raw)))
	c.add(what+", base64", base64.StdEncoding.EncodeToString(raw))
	c.add(what+", base64url", base64.RawURLEncoding.EncodeToString(raw))
}

// search returns how many canaries a text holds, and what the first one is.
func (c canaries) search(text []byte) (hits int, first string) {
	for i := 0; i+chunk <= len(text); i++ {
		if what, ok := c[[chunk]byte(text[i:i+chunk])]; ok {
			if hits++; first == "" {
				first = what
			}
		}
	}
	return hits, first
}

// place is one kind of output.
type place struct {
	name  string
	texts [][]byte
}

func (p *place) add(text []byte) { p.texts = append(p.texts, text) }

func (p *place) search(c canaries) (bytes, hits int, first string) {
	for _, text := range p.texts {
		bytes += len(text)
		n, what := c.search(text)
		if hits += n; first == "" {
			first = what
		}
	}
	return bytes, hits, first
}

// leaks searches every place and returns what it found, as errors.
func (c canaries) leaks(places []*place) (errs []error) {
	for _, p := range places {
		if _, hits, first := p.search(c); hits > 0 {
			errs = append(errs, fmt.Errorf("%d leaks in %s, the first one: %s", hits, p.name, first))
		}
	}
	return errs
}
