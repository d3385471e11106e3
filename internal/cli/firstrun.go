package cli

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// defaultConfig is the configuration that a first `ichido serve` writes.
const defaultConfig = "ichido-data/ichido.yaml"

const firstConfig = `# Written by the first "ichido serve". It holds secrets: keep it to yourself.
# Add a source for each sender; "ichido check" says what is wrong with a change,
# and a running server takes it over by itself.

listen: 127.0.0.1:8080
admin: {listen: 127.0.0.1:8081}
store: sqlite:ichido-data/ichido.db

sources:
  # Deliveries are POSTed to /hooks/inbox/PATH_TOKEN with X-Timestamp (Unix
  # seconds) and X-Signature (hex HMAC-SHA256 of "TIMESTAMP.BODY" with the
  # secret). Try it: ichido send inbox
  - name: inbox
    provider: hmac
    path_token: %s
    secrets: [%s]
    # deliver: {to: "http://localhost:3000/webhooks"}

  # - name: stripe
  #   provider: stripe
  #   secrets: [env:STRIPE_WEBHOOK_SECRET]
  #   deliver: {to: "http://localhost:3000/webhooks/stripe"}
`

// writeFirstConfig makes the configuration of a first run, with fresh
// secrets, readable by its owner only. It never overwrites a file.
func writeFirstConfig() error {
	folder := filepath.Dir(defaultConfig)
	if err := makeFolder(folder); err != nil {
		return firstRunError(fmt.Errorf("make %s: %w", folder, shortened(err)))
	}
	f, err := os.OpenFile(defaultConfig, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return firstRunError(fmt.Errorf("write the first configuration: %w", err))
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, firstConfig, randomToken(), randomToken()); err != nil {
		return fmt.Errorf("write the first configuration: %w", err)
	}
	return f.Close()
}

// firstRunError says what to do where the first configuration cannot be made.
func firstRunError(err error) error {
	hint := ""
	if cannotWrite(err) {
		hint = "run it in a folder that you may write to, or name a configuration with --config"
	}
	return &failure{exitError, err, hint}
}

// randomToken returns 160 random bits as 32 lower-case letters and digits.
func randomToken() string {
	var raw [20]byte
	rand.Read(raw[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}
