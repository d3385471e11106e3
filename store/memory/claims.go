package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Claims returns the store's inline claims. A claim is held until it is
// completed or released: the process that runs its handler is the only owner,
// and when it ends the claims end with it.
func (s *Store) Claims() ichido.Claims { return &s.claims }

type claims struct {
	opt Options

	mu        sync.Mutex           // guards the maps
	held      map[string]hold      // by key
	completed map[string]time.Time // key to when
}

// hold is a claim that is held.
type hold struct {
	token string
	at    time.Time
}

// Claim implements [ichido.Claims]. A held claim has room reserved for its
// completion, so that the completed ones never exceed the capacity.
func (c *claims) Claim(ctx context.Context, key string) (ichido.Verdict, string, error) {
	if err := ctx.Err(); err != nil {
		return 0, "", fmt.Errorf("claim key: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.opt.Clock().Add(-c.opt.Keys)
	if at, ok := c.completed[key]; ok {
		if at.After(old) {
			return ichido.Duplicate, "", nil
		}
		delete(c.completed, key)
	}
	if _, ok := c.held[key]; ok {
		return ichido.InProgress, "", nil
	}
	if len(c.held)+len(c.completed) >= c.opt.Capacity {
		for key, at := range c.completed {
			if !at.After(old) {
				delete(c.completed, key)
			}
		}
	}
	if len(c.held)+len(c.completed) >= c.opt.Capacity || len(c.held) >= c.opt.Running {
		return ichido.Full, "", nil
	}
	token := rand.Text()
	c.held[key] = hold{token, rule.Milliseconds(c.opt.Clock())}
	return ichido.Accepted, token, nil
}

// Complete implements [ichido.Claims].
func (c *claims) Complete(_ context.Context, key, token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.held[key]; !ok || have.token != token {
		return ichido.ErrLeaseLost
	}
	delete(c.held, key)
	c.completed[key] = c.opt.Clock()
	return nil
}

// Release implements [ichido.Claims].
func (c *claims) Release(_ context.Context, key, token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.held[key]; !ok || have.token != token {
		return ichido.ErrLeaseLost
	}
	delete(c.held, key)
	return nil
}

// pending returns how many claims are held, and the keys of the oldest.
func (c *claims) pending() (n int, oldest []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest = slices.SortedFunc(maps.Keys(c.held), func(a, b string) int {
		return cmp.Or(c.held[a].at.Compare(c.held[b].at), cmp.Compare(a, b))
	})
	return len(c.held), oldest[:min(len(oldest), rule.MaxPendingKeys)]
}
