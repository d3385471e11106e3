package provider
import ("testing")
func TestProfilesLoad(t *testing.T) {
	if _, err := profiles(); err != nil { t.Fatal(err) }
	if len(Names()) != 13 { t.Fatal(Names()) }
}
