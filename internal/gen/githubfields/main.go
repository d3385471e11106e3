// Command githubfields writes the table of members that the body of each
// GitHub event must have, from the published OpenAPI description of GitHub's
// webhooks. It does not run in a build: the table is committed, and this
// command is run by go generate when a new description is out.
//
// A member is required if every description in the package (GitHub itself and
// the Enterprise Server releases) requires it, so that no honest delivery is
// refused. Below the top level only the identifying members are kept.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is the npm package with the descriptions. Its licence is MIT.
const source = "@octokit/openapi-webhooks@12.1.0"

func main() {
	out := flag.String("out", "githubfields.txt", "file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "githubfields:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	descriptions, err := download(source)
	if err != nil {
		return err
	}
	table := map[string]map[string]bool{} // "event action" to paths
	for _, d := range descriptions {
		if err := d.collect(table); err != nil {
			return err
		}
	}
	return os.WriteFile(out, write(table), 0o644)
}

// download fetches the package with the npm client and reads the
// descriptions in it.
func download(name string) ([]*description, error) {
	dir, err := os.MkdirTemp("", "githubfields")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pack := exec.Command("npm", "pack", name, "--silent", "--pack-destination", dir)
	pack.Stderr = os.Stderr
	if err := pack.Run(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w", name, err)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return nil, fmt.Errorf("npm pack %s left %d archives", name, len(archives))
	}
	data, err := os.ReadFile(archives[0])
	if err != nil {
		return nil, err
	}
	return unpack(data)
}

func unpack(data []byte) ([]*description, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var all []*description
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(header.Name, "package/generated/") || !strings.HasSuffix(header.Name, ".json") {
			continue
		}
		d := new(description)
		if err := json.NewDecoder(files).Decode(d); err != nil {
			return nil, fmt.Errorf("read %s: %w", header.Name, err)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, errors.New("the package holds no descriptions")
	}
	return all, nil
}

// description is the part of an OpenAPI document that is read.
type description struct {
	Webhooks map[string]struct {
		Post struct {
			OperationID string `json:"operationId"`
			RequestBody struct {
				Content map[string]struct {
					Schema *schema `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"post"`
	} `json:"webhooks"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Enum       []any              `json:"enum"`
	OneOf      []*schema          `json:"oneOf"`
	AnyOf      []*schema          `json:"anyOf"`
	AllOf      []*schema          `json:"allOf"`
	Nullable   bool               `json:"nullable"`
}

func (d *description) resolve(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	return s
}

// collect narrows the table to what this description requires too.
func (d *description) collect(table map[string]map[string]bool) error {
	for name, hook := range d.Webhooks {
		body := d.resolve(hook.Post.RequestBody.Content["application/json"].Schema)
		if body == nil {
			return fmt.Errorf("webhook %s has no schema", name)
		}
		event, _, _ := strings.Cut(hook.Post.OperationID, "/")
		event = strings.ReplaceAll(event, "-", "_")
		for _, action := range d.actions(body) {
			key := event + " " + action
			paths := d.required(body)
			maps.DeleteFunc(paths, func(path string, _ bool) bool { return dependsOnOwner(event, path) })
			if known := table[key]; known != nil {
				maps.DeleteFunc(known, func(path string, _ bool) bool { return !paths[path] })
				continue
			}
			table[key] = paths
		}
	}
	return nil
}

// actions returns the values of the action member, "-" where it is absent or
// free.
func (d *description) actions(body *schema) []string {
	var found []string
	for _, s := range d.alternatives(body) {
		action := d.resolve(s.Properties["action"])
		if action == nil || len(action.Enum) == 0 {
			found = append(found, "-")
			continue
		}
		for _, value := range action.Enum {
			found = append(found, fmt.Sprint(value))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// alternatives returns the schemas of which a body fits at least one.
func (d *description) alternatives(s *schema) []*schema {
	s = d.resolve(s)
	options := append(slices.Clone(s.OneOf), s.AnyOf...)
	if len(options) == 0 {
		return []*schema{s}
	}
	var all []*schema
	for _, option := range options {
		all = append(all, d.alternatives(option)...)
	}
	return all
}

// identifying are the members that are kept below the top level.
var identifying = []string{"id", "number", "full_name"}

// dependsOnOwner reports whether a member is there only for some owners of a
// hook (an app, an organization), whatever the description says of its
// example. In events about that owner it always is.
func dependsOnOwner(event, path string) bool {
	name, _, _ := strings.Cut(path, ".")
	return slices.Contains([]string{"installation", "organization", "enterprise"}, name) && !strings.HasPrefix(event, name)
}

// required returns the paths that all alternatives require.
func (d *description) required(body *schema) map[string]bool {
	var common map[string]bool
	for _, s := range d.alternatives(body) {
		paths := map[string]bool{}
		for _, name := range s.Required {
			paths[name] = true
			child := d.resolve(s.Properties[name])
			if child == nil || child.Nullable || child.Type != "object" {
				continue
			}
			for _, inner := range child.Required {
				if slices.Contains(identifying, inner) {
					paths[name+"."+inner] = true
				}
			}
		}
		if common == nil {
			common = paths
			continue
		}
		maps.DeleteFunc(common, func(path string, _ bool) bool { return !paths[path] })
	}
	return common
}

// write writes the table: a line per event and action.
func write(table map[string]map[string]bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by internal/gen/githubfields from %s (MIT). Do not edit.\n", source)
	fmt.Fprintln(&b, "# event action required members")
	keys := slices.SortedFunc(maps.Keys(table), cmp.Compare)
	for _, key := range keys {
		fmt.Fprintln(&b, key, strings.Join(slices.Sorted(maps.Keys(table[key])), " "))
	}
	return b.Bytes()
}
