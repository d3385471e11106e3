package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) token() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Make a bearer token for the admin API and its hash for the configuration",
		Long: `Make a bearer token for the admin API and its hash for the configuration.

The token is shown this once. Put the hash under admin.tokens; the
configuration never holds the token itself.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			token := "ichido_" + randomToken()
			sum := sha256.Sum256([]byte(token))
			hash := "sha256:" + hex.EncodeToString(sum[:])
			return a.print(map[string]string{"token": token, "hash": hash}, func(w io.Writer) {
				fmt.Fprintf(w, "token  %s\nhash   %s\n", token, hash)
			})
		},
	}
}
