// Package ichido is a webhook inbox: every genuine webhook, stored before it
// is acknowledged, applied once.
//
// Most programs need two calls: [NewInbox] makes the http.Handler that
// receives the deliveries of one source, and [NewWorker] makes the worker that
// handles what was stored.
//
//	src, err := provider.New("stripe", provider.Config{Secrets: …})
//	src.Handler = func(ctx context.Context, e *ichido.Event) error { … }
//	inbox, err := ichido.NewInbox(store, src)
//	http.Handle("/webhooks/stripe", inbox)
//	err = ichido.NewWorker(store, inbox).Run(ctx) // beside the http.Server, until ctx ends
//
// The provider comes from package provider, the store from one of the folders
// of store. The program ichido, in cmd/ichido, is the same as a server that
// stands in front of services written in anything.
//
// # Guarantees
//
//   - Genuine. A handler only ever gets an [Event], and an event is only ever
//     made from the [Proof] that its provider returned for exactly the bytes
//     received, inside the scheme's time window.
//   - Kept. A 2xx means committed and synced to disk, as far as the store
//     promises it: see the store's package.
//   - Once. There is one verdict per source and key. With a transactional
//     handler ([Applier]) the effect and the completion commit together: once,
//     or not at all. With any other handler an event is handled at least once,
//     with a stable id, and never by two at a time under a live lease.
//   - True. A source can require that the provider's own API confirms an
//     event before its handler runs.
//   - Answerable. Every accepted, quarantined and dead event can be found and
//     explained, and done and dead ones replayed; every refusal is counted by
//     its cause.
//
// # Not guaranteed
//
// There is no promise of order. Effects outside the store's transaction are
// not once. The loss of the whole disk without a replica loses events. What a
// sender never sent is not here. A replay that an operator asks for runs the
// handler again.
//
// # Compatibility
//
// Before version 1.0 the API may change with a note in the release; error
// codes, event ids and the stored data only with a migration.
package ichido
