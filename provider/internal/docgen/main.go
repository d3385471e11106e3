// Command docgen writes docs/providers.md from the profiles of package
// provider and their vectors. A test fails when the committed file is not what
// it would write. It describes; it decides nothing.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ichido.dev/ichido/provider"
)

func main() {
	text, err := render("profiles")
	if err == nil {
		err = os.WriteFile(filepath.Join("..", "docs", "providers.md"), []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// counts is how many vectors there are, and where they are from.
type counts struct{ found, computed int }

// countVectors counts the vectors of a profile by variant, and under "" all
// of them.
func countVectors(dir string, p *provider.Profile) (map[string]counts, error) {
	data, err := os.ReadFile(filepath.Join(dir, p.ID+".vectors.json"))
	if err != nil {
		return nil, err
	}
	var vectors []struct{ Origin, Variant string }
	if err := json.Unmarshal(data, &vectors); err != nil {
		return nil, fmt.Errorf("read vectors of %s: %w", p.ID, err)
	}
	all := map[string]counts{}
	for _, v := range vectors {
		if v.Variant == "" {
			v.Variant = p.Variants[0].Name
		}
		for _, name := range []string{"", v.Variant} {
			c := all[name]
			if strings.HasPrefix(v.Origin, "found") {
				c.found++
			} else {
				c.computed++
			}
			all[name] = c
		}
	}
	return all, nil
}

// render writes the page. dir holds the vectors.
func render(dir string) (string, error) {
	var b strings.Builder
	b.WriteString(heading)
	vectors := map[string]map[string]counts{}
	var profiles []*provider.Profile
	for _, name := range provider.Names() {
		p, err := provider.Lookup(name)
		if err != nil {
			return "", err
		}
		if vectors[name], err = countVectors(dir, p); err != nil {
			return "", err
		}
		profiles = append(profiles, p)
	}
	for _, p := range profiles {
		for _, v := range p.Variants {
			c := vectors[p.ID][v.Name]
			row(&b, p.ID, v.Name, v.Kind, v.Strength, mark(v.IDSigned, v.HasID), mark(v.TypeSigned, v.TypeFrom != ""), mark(v.TimeSigned, v.TimeSigned),
				mark(len(p.Handshakes) > 0, true), horizon(p.Horizon), fmt.Sprint(c.found), fmt.Sprint(c.computed), p.Confidence)
		}
	}
	for _, p := range profiles {
		section(&b, p, vectors[p.ID][""])
	}
	return b.String(), nil
}

const heading = `# Providers

Written by ` + "`go generate ./provider`" + ` from the profiles. Do not edit.

What a variant proves: *verified*, the signature covers the whole body; *authenticated*, the sender knew a secret, and the body is not
bound to it. "Signed" means that a captured delivery cannot be sent again under another id, type or time. Where the id is not signed, or
there is none, an event is identified by its bytes. The horizon is how long a retry, or a redelivery by hand, may come; a week is assumed
where it is unknown. Vectors found were taken from the sender's own tests or documentation; the others were computed by the scheme
that those describe. Confidence says what the scheme was read from: *high*, the sender's own code or its documents, which agree;
*medium*, one of them only, or a part of it was not to be read. Each section names what was read.

| provider | variant | kind | strength | id signed | type signed | time signed | handshake | horizon | vectors found | computed | confidence |
|---|---|---|---|---|---|---|---|---|--:|--:|---|
`

func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func mark(yes, exists bool) string {
	switch {
	case !exists:
		return "–"
	case yes:
		return "yes"
	}
	return "no"
}

func horizon(d time.Duration) string {
	switch {
	case d == 0:
		return "unknown"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

// section writes what there is to know about one provider.
func section(b *strings.Builder, p *provider.Profile, c counts) {
	fmt.Fprintf(b, "\n## %s\n\n%s. %s.\n\n", p.ID, p.Name, p.Scheme)
	fact(b, "Documentation", p.Docs)
	for _, v := range p.Variants {
		if v.About != "" {
			about := v.About
			if v.Off {
				about += "; off unless it is named"
			}
			fact(b, "Variant `"+v.Name+"`", about)
		}
	}
	fact(b, "Signed", p.Signed)
	fact(b, "Not signed", p.Unsigned)
	fact(b, "Window", window(p))
	fact(b, "Handshakes", strings.Join(p.Handshakes, "; "))
	fact(b, "Retries", p.Retries+retryWords[p.Retry])
	if p.Deadline > 0 {
		fact(b, "Answer within", fmt.Sprintf("%d s", int(p.Deadline.Seconds())))
	}
	fact(b, "Delivered", p.Success)
	fact(b, "Stops", p.Stops)
	fact(b, "Keys", p.Retention)
	for _, s := range p.Settings {
		text := s.About
		if s.Default != "" {
			text += ", `" + s.Default + "` by default"
		}
		fact(b, "Setting `"+s.Name+"`", text)
	}
	if len(p.UnsignedIDs) > 0 {
		fact(b, "Ids that identify nothing", strings.Join(p.UnsignedIDs, ", "))
	}
	fact(b, "Vectors", fmt.Sprintf("%d found, %d computed", c.found, c.computed))
	fact(b, "Read", strings.Join(p.Sources, "; "))
	if len(p.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range p.Notes {
		b.WriteString("> " + note + "\n>\n")
	}
}

var retryWords = map[string]string{
	"resigned":  " (each signed anew)",
	"identical": " (the same bytes)",
	"none":      "",
	"unknown":   " (whether signed anew is not known)",
}

func window(p *provider.Profile) string {
	for _, v := range p.Variants {
		if v.Tolerance > 0 {
			return fmt.Sprintf("%d s, both directions", int(v.Tolerance.Seconds()))
		}
	}
	for _, v := range p.Variants {
		if v.TimeSigned {
			return "none: what is sent again may carry the old time"
		}
	}
	return "none: no time is signed"
}

func fact(b *strings.Builder, name, text string) {
	if text != "" {
		fmt.Fprintf(b, "- **%s**: %s\n", name, text)
	}
}
