package loopback

import "testing"

func TestOnlyWhatIsWrittenAsThisMachineIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.255.0.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "127.1": false, "2130706433": false,
		"0.0.0.0": false, "::": false, "10.0.0.1": false, "192.168.0.1": false, "169.254.169.254": false, "::1%lo": false, "[::1]": false,
		"127.0.0.1:80": false, "example.com": false,
	} {
		if got := Is(host); got != want {
			t.Errorf("Is(%q) = %t, want %t", host, got, want)
		}
	}
}
