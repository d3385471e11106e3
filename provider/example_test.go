package provider_test

import (
	"fmt"
	"net/http"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

// A source is made from a profile and the secret that the sender shows. Its
// provider turns a delivery into a proof, or refuses it.
func ExampleNew() {
	const secret = "whsec_made-up-for-this-example" // from the environment, in real life
	source, err := provider.New("stripe", provider.Config{Secrets: []provider.Secret{{Value: secret}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	body := []byte(`{"id":"evt_1","type":"payment_intent.succeeded"}`)
	now := time.Now()
	header, err := provider.Sign("stripe", provider.SignConfig{Secret: secret, Time: now}, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	delivery := &ichido.Delivery{Method: http.MethodPost, Header: header, Body: body, ReceivedAt: now}
	proof, err := source.Provider.Verify(delivery)
	fmt.Println(proof.Key, proof.Type, proof.Strength, err)

	delivery.ReceivedAt = now.Add(10 * time.Minute)
	_, err = source.Provider.Verify(delivery)
	fmt.Println(err)
	// Output:
	// evt_1 payment_intent.succeeded verified <nil>
	// verify: signature_invalid (stale_past): past by 600 s
}

// All problems of a configuration are reported together, and none shows a
// value.
func ExampleNew_problems() {
	_, err := provider.New("github", provider.Config{
		Secrets:             []provider.Secret{{Value: ""}, {Value: "changeme"}},
		AllowedRepositories: []string{"octo-org/inbox"},
	})
	fmt.Println(err)
	// Output:
	// provider github: secrets[0] is empty: set it, an empty secret would let anyone sign
	// secrets[1] is a placeholder: put the real secret in its place
}
