// Package subject builds the binary that is tested and runs it as a process
// of its own: started, waited for, killed, and asked how it ended.
//
// It knows nothing of what the process should do.
package subject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root returns the folder of the module that is tested: the one above the
// module that the working directory belongs to.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("find the module: run this in the integration folder")
	}
	return filepath.Dir(filepath.Dir(mod)), nil
}

// Build builds the command of the tested module, static and with the given
// build tags, as it is shipped, and returns its path. Every call builds what is there now.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	name := strings.Join(append([]string{"ichido"}, tags...), "-")
	return build(ctx, root, "./cmd/ichido", filepath.Join(dir, name), tags...)
}

// BuildHere builds a command of this module.
func BuildHere(ctx context.Context, dir, pkg, name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return build(ctx, filepath.Join(root, "integration"), pkg, filepath.Join(dir, name))
}

func build(ctx context.Context, dir, pkg, out string, tags ...string) (string, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", strings.Join(tags, ","), "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return out, nil
}
