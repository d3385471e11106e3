package sqlite

import "context"

// Hold stops the committer until release is called, as a slow disk would.
func (s *Store) Hold() (release func()) {
	holding, released := make(chan struct{}), make(chan struct{})
	o := &op{name: "hold", done: make(chan error, 1), alone: func(*writer) error {
		close(holding)
		<-released
		return nil
	}}
	s.alone <- o
	<-holding
	return func() { close(released) }
}

// Waiting returns how many operations wait for the committer.
func (s *Store) Waiting() int { return len(s.ops) + len(s.alone) }

// SetFreeSpace sets what the store finds when it looks at the disk.
func (s *Store) SetFreeSpace(ctx context.Context, bytes uint64) error {
	return s.do(ctx, &op{name: "set free space", run: func(t *txn) error {
		t.s.disk.free = func(string) (uint64, bool) { return bytes, true }
		return nil
	}}, true)
}
