package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"ichido.dev/ichido"
)

// Claims returns the store's inline claims. A claim is held until it is
// completed or released: the process that runs its handler is the only owner,
// and when it ends the claims end with it.
func (s *Store) Claims() ichido.Claims { return &s.claims }

type claims struct {
	opt Options

	mu        sync.Mutex           // guards the maps
	held      map[string]string    // key to token
	completed map[string]time.Time // key to when
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
	c.held[key] = token
	return ichido.Accepted, token, nil
}

// Complete implements [ichido.Claims].
func (c *claims) Complete(_ context.Context, key, token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.held[key]; !ok || have != token {
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
	if have, ok := c.held[key]; !ok || have != token {
		return ichido.ErrLeaseLost
	}
	delete(c.held, key)
	return nil
}

func (c *claims) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}
