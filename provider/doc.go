// Package provider knows how the senders of webhooks sign, and turns that
// knowledge and an operator's secrets into an [ichido.Source].
//
// The two calls most people need are [New], which makes a source that
// verifies what one sender sends, and [Sign], which makes the headers that
// this sender would send:
//
//	src, err := provider.New("stripe", provider.Config{
//		Secrets: []provider.Secret{{Value: os.Getenv("STRIPE_WEBHOOK_SECRET")}},
//	})
//
// Each sender is a profile: a YAML file in the folder profiles, embedded in
// the package, with published and computed vectors beside it. A profile is
// written in a small closed language (verbs mac, sig, token and jwt) that is
// checked when it is loaded and compiled once per source, so that a request
// costs little more than its MAC. What is not configurable in it: a signature
// header that occurs twice is refused; every live secret is tried, in constant
// time, over decoded bytes of the exact length; the time window is judged in
// both directions, after the signature; only what a signature covers
// identifies an event.
//
// The provider of such a source also implements [ichido.Inspector],
// [ichido.Challenger] and [ichido.Acknowledger]. A value that wraps it, to log
// or to count, has only the methods it declares: without Inspect, bodies are
// not judged before a handler; without Challenge, handshakes such as Slack's
// and Discord's go unanswered; without Acknowledge, senders get the standard
// answer instead of the one they expect. Embedding [ichido.Provider] forwards
// Verify alone, so a wrapper must forward the three others itself.
//
// The package does not read request bodies from the network, store events,
// retry, or confirm events with a sender's API, and it makes no request of its
// own but for a key set that a configuration asks for. Schemes that the
// language cannot say are written as another [ichido.Provider]; package
// providertest checks those.
package provider

//go:generate go run ./internal/docgen
